"""The shop's own small data set: orders, catalogue, specifications and the knowledge of each domain. Made up, and complete.

Every slice belongs to one domain's tools; no document stands in two. The models sold before and still in use are known to
the specifications only, so that they can be compared and never offered. Called by this team's tools.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

UNKNOWN = "UNKNOWN"
SUPPORTED = "SUPPORTED"

ROBOTS_ON_SALE = "在售扫地机"
SPEAKER = "比特 SoundBox Mini 智能音箱"


@dataclass(frozen=True, slots=True)
class Order:
    """One order of one product."""

    order_id: str
    product: str
    price: int
    signed: date
    status: str


@dataclass(frozen=True, slots=True)
class Document:
    """One piece of knowledge; `keywords` are what a search finds it by."""

    id: str
    title: str
    text: str
    keywords: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OnSale:
    """One model of the catalogue."""

    name: str
    price: int
    app_control_status: str


@dataclass(frozen=True, slots=True)
class Linkage:
    """What is known of one device and one speaker."""

    device: str
    speaker: str
    status: str


ORDERS = (
    Order("88231", "比特 S10 Pro 扫地机", 1999, date(2026, 6, 22), "已签收"),
    Order("88107", "比特 S9 扫地机", 1399, date(2025, 3, 8), "已签收"),
)

CATALOGUE = (
    OnSale("比特 S11 Pro 扫地机", 1899, SUPPORTED),
    OnSale("比特 S10 Lite 扫地机", 1299, UNKNOWN),
)

SPECIFICATIONS: dict[str, dict[str, str]] = {
    "比特 S11 Pro 扫地机": {"suction": "8000 Pa", "battery": "180 分钟", "control": "App 远程控制", "appControlStatus": SUPPORTED},
    "比特 S10 Pro 扫地机": {"suction": "6000 Pa", "battery": "150 分钟", "control": "App 远程控制", "appControlStatus": SUPPORTED},
    "比特 S10 Lite 扫地机": {
        "suction": "4000 Pa",
        "battery": "110 分钟",
        "onDeviceOperation": "机身按键",
        "appControlStatus": UNKNOWN,
    },
}

AFTERSALES_DOCUMENTS = (
    Document(
        "after-warranty",
        "保修政策",
        "整机保修自签收日起一年。保修期内，经检测确认属于硬件故障且非人为造成的，免费维修。",
        ("保修", "维修", "质保", "故障", "免费", "期限"),
    ),
    Document(
        "after-return",
        "七天无理由退货",
        "签收后七天内，商品完好可以无理由退货；超过七天不再适用。",
        ("退货", "无理由", "七天", "退款"),
    ),
    Document(
        "after-dropouts",
        "扫地机掉线的处理顺序",
        "先重启机器并完成固件升级，再恢复出厂设置后重新绑定；仍反复掉线的，记录掉线的时间与指示灯状态，申请检测。",
        ("掉线", "断开", "离线", "连接", "重启", "固件"),
    ),
)

LINKAGE_DOCUMENTS = (
    Document(
        "link-speaker",
        "SoundBox Mini 联动清单",
        "清单列出的设备可以用 SoundBox Mini 语音启动、暂停和回充；清单标为 UNKNOWN 的设备尚未测试。",
        ("SoundBox", "音箱", "联动", "语音", "兼容"),
    ),
)

LINKAGES = (
    Linkage("比特 S11 Pro 扫地机", SPEAKER, SUPPORTED),
    Linkage("比特 S10 Lite 扫地机", SPEAKER, UNKNOWN),
)
