"""The pages that a search brings, written from the data set: long, plausible and made up, the same to the byte each time.

Most of such a page is of no use to whoever plans a trip, as on the web: opening hours day by day, prices by platform and date,
what visitors say. Pure; called by this team's tools, and by the bench that measures what it costs to pass them on.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta

from schemas.codec import encode
from workers.teams.trip.data import Hotel, Spot

FIRST_DAY = date(2026, 8, 1)
DAYS = 31
_WEEKDAYS = "一二三四五六日"


@dataclass(frozen=True, slots=True)
class Page:
    """One page as it was fetched."""

    title: str
    url: str
    text: str


def as_text(pages: list[Page]) -> str:
    """Return pages as the one JSON text in which they are kept; places in it are counted in characters."""
    return encode([{"title": each.title, "url": each.url, "text": each.text} for each in pages]).decode()


def spot_pages(spot: Spot) -> list[Page]:
    """Return what one search for a place brings: its notices, its calendar, what visitors say, and how to get there."""
    chance = random.Random(spot.name)
    site = f"https://{spot.site}"
    return [
        Page(f"{spot.name} 入场须知", f"{site}/notice", " ".join(_notices(spot, chance))),
        Page(f"{spot.name} 八月开放日历", f"{site}/calendar", " ".join(_calendar(chance))),
        Page(f"{spot.name} 游客点评", f"https://tabi-koe.example/{spot.site.partition('.')[0]}", " ".join(_reviews(spot, chance))),
        Page(f"{spot.name} 交通与周边", f"{site}/access", " ".join(_ways(spot, chance))),
    ]


def hotel_pages(hotel: Hotel) -> list[Page]:
    """Return what a comparison of one hotel brings: its own page, and the price lists of three platforms."""
    chance = random.Random(hotel.name)
    own = Page(f"{hotel.name} 客房与政策", f"https://{hotel.site}/rooms", " ".join(_rooms(hotel, chance)))
    return [own, *(_prices(hotel, platform, chance) for platform in ("yadoya-list", "stay-hikaku", "tomari-navi"))]


def _notices(spot: Spot, chance: random.Random) -> Iterator[str]:
    yield f"{spot.name}位于{spot.area}，以{spot.known_for}著称，建议游览时间约 {spot.hours:g} 小时。"
    yield f"两名成人与一名儿童的门票合计 {spot.yen:,} 日元，按本页汇率约合人民币 {spot.cost} 元，网上购票当日有效，不可转让。"
    for place in ("检票口", "寄存处", "餐饮区", "纪念品店", "医务室", "哺乳室", "失物招领处"):
        opens, minutes = chance.randint(8, 10), chance.choice((0, 15, 30, 45))
        side = chance.choice(("东侧", "西侧", "南侧", "北侧", "中央大厅"))
        closing = chance.choice((20, 30, 40))
        yield f"{place}设在{side} {chance.randint(1, 3)} 层，{opens}:{minutes:02d} 开放，闭场前 {closing} 分钟停止受理。"
    yield "场内禁止使用三脚架、自拍杆和无人机，闪光灯在标有图示的展区须关闭，商业拍摄须提前两周书面申请。"
    yield spot.child_rule
    yield "携带大件行李的游客请使用入口外的投币柜，小柜四百日元、大柜七百日元，隔夜未取的物品移交管理处保管。"
    yield "遇台风或震度四以上的地震时临时闭场，当日票可以在三十日内改期一次，退款须凭购票邮件在官网填写申请。"
    yield f"团体十五人以上享受九折，须在参观前 {chance.randint(5, 10)} 日预约，学校团体另设午餐场地，先到先得。"


def _calendar(chance: random.Random) -> Iterator[str]:
    yield "下列时间为预计，以当日公告为准；等候时间按去年同期统计，余票每十分钟更新一次。"
    for day in (FIRST_DAY + timedelta(days=number) for number in range(DAYS)):
        weekend = day.weekday() >= 5
        wait = chance.randint(25, 70) if weekend else chance.randint(5, 30)
        tickets, closes = chance.randint(40, 900), chance.choice((17, 18, 20) if weekend else (17, 18))
        crowd = "拥挤" if wait > 40 else "略多" if wait > 20 else "宽松"
        yield (
            f"{day.month}月{day.day}日（周{_WEEKDAYS[day.weekday()]}）{chance.choice((9, 10))}:00 至 {closes}:00，"
            f"预计等候 {wait} 分钟，客流{crowd}，上午余票 {tickets} 张，下午余票 {chance.randint(20, 600)} 张。"
        )


_OPENINGS = (
    "带着四岁的孩子去的",
    "和父母一起去了半天",
    "第二次来",
    "下雨天临时改来这里",
    "朋友推荐的",
    "周三上午到的",
    "暑假最后一周去的",
    "推着婴儿车去的",
)
_PRAISE = ("工作人员很耐心", "指示牌有中文", "拍照的地方很多", "比想象中大", "洗手间很干净", "休息的座位够用", "空调开得足", "讲解器有中文")
_COMPLAINTS = (
    "午饭排了很久的队",
    "停车场不好找",
    "纪念品偏贵",
    "出口离车站有点远",
    "周末人实在多",
    "饮料机常常售罄",
    "存包柜很快就满了",
    "闭场广播太早",
)
_CLOSINGS = (
    "下次还会再来。",
    "半天足够了。",
    "建议早上开门就到。",
    "回程在车站吃了晚饭。",
    "孩子睡着了才走。",
    "总体值得。",
    "票务很顺利。",
    "会推荐给同事。",
)


def _reviews(spot: Spot, chance: random.Random) -> Iterator[str]:
    for number in range(1, 10):
        day = FIRST_DAY - timedelta(days=chance.randint(20, 400))
        yield (
            f"点评 {number}（{day.isoformat()}，{chance.randint(35, 50) / 10:g} 分）：{chance.choice(_OPENINGS)}，"
            f"{chance.choice(_PRAISE)}，{spot.known_for.split('与')[chance.randint(0, 1)]}看了 {chance.randint(10, 60)} 分钟，"
            f"不过{chance.choice(_COMPLAINTS)}。{chance.choice(_CLOSINGS)}"
        )


def _ways(spot: Spot, chance: random.Random) -> Iterator[str]:
    yield f"从{spot.station}步行约 {spot.walk_minutes} 分钟，出站后沿指示牌直行，全程有遮雨棚。"
    for start in ("东京站", "新宿站", "池袋站", "品川站", "羽田机场"):
        yield (
            f"由{start}出发约 {chance.randint(15, 90)} 分钟，换乘 {chance.randint(0, 2)} 次，成人单程 {chance.randint(17, 320) * 10} 日元，"
            f"首班 {chance.randint(5, 6)}:{chance.randint(10, 59)}，末班 {chance.randint(22, 23)}:{chance.randint(10, 59)}，"
            f"站内电梯在{chance.choice(('进站方向前部', '进站方向后部', '站台中部'))}。"
        )
    for shop in ("便利店", "家庭餐厅", "药妆店", "咖啡馆"):
        yen = chance.randint(4, 25) * 100
        yield f"周边{shop}步行 {chance.randint(2, 12)} 分钟，营业至 {chance.randint(19, 23)}:00，人均约 {yen} 日元。"


def _rooms(hotel: Hotel, chance: random.Random) -> Iterator[str]:
    yield f"{hotel.name}位于{hotel.area}，距{hotel.station}步行 {hotel.walk_minutes} 分钟，{hotel.room}可住两名成人与一名儿童。"
    yield f"{hotel.room}每晚人民币 {hotel.nightly:,} 元，含税不含住宿税，入住前两日可以免费取消。"
    yield hotel.family_rule
    for thing in ("洗衣房", "停车场", "健身房", "早餐厅", "行李寄存", "儿童用品出借", "投币式微波炉", "制冰机"):
        opens, closes, yen = chance.randint(6, 9), chance.randint(20, 23), chance.randint(0, 20) * 100
        yield f"{thing}在 {chance.randint(1, 12)} 层，{opens}:00 至 {closes}:00 可用，费用 {yen} 日元。"
    for floor in range(2, 14):
        yield (
            f"{floor} 层共 {chance.randint(8, 24)} 间客房，面积 {chance.randint(16, 44)} 平方米，窗户朝{chance.choice('东南西北')}，"
            f"可住 {chance.randint(2, 4)} 人，{chance.choice(('有浴缸', '只有淋浴'))}，距电梯最远 {chance.randint(15, 60)} 米。"
        )
    yield "入住时请出示全部住客的护照，未成年人单独入住须提交监护人同意书，全馆禁烟，违者收取清洁费三万日元。"


def _prices(hotel: Hotel, platform: str, chance: random.Random) -> Page:
    rows = [f"{hotel.name} {hotel.room}，两大一小，以下为各入住日的每晚含税价，房价每小时变动，以下单时为准。"]
    for day in (FIRST_DAY + timedelta(days=number) for number in range(DAYS)):
        price = hotel.nightly + chance.randint(0, 12) * 10 + (hotel.nightly // 12 if day.weekday() >= 5 else 0)
        rows.append(
            f"{day.month}月{day.day}日入住：{price:,} 元，剩余 {chance.randint(1, 9)} 间，{chance.choice(('含早餐', '不含早餐'))}，"
            f"{chance.choice(('可免费取消', '不可取消', '取消收首晚'))}，积分 {chance.randint(20, 300)}。"
        )
    return Page(f"{hotel.name} 比价 {platform}", f"https://{platform}.example/{hotel.site.partition('.')[0]}", " ".join(rows))
