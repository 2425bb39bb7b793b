"""What there is to visit and where to sleep: this team's own made-up data set. No place, price or rule of it is real.

The pages that a search brings (`pages`) are written from these rows, and from nothing else. Called by this team's tools.
"""

from __future__ import annotations

from dataclasses import dataclass

CITY = "东京"
FAMILY = "亲子"
ADULT_AGE = 18


@dataclass(frozen=True, slots=True)
class Spot:
    """One place to visit; `cost` is in CNY, for two adults and a child."""

    name: str
    keywords: tuple[str, ...]
    """What a search finds it by."""
    area: str
    cost: int
    yen: int
    rating: float
    min_age: int
    """Who is younger is not let in."""
    hours: float
    site: str
    known_for: str
    child_rule: str
    """What its notices say of children and strollers, in one sentence."""
    station: str
    walk_minutes: int

    @property
    def fits_children(self) -> bool:
        """Whether a family may go there."""
        return self.min_age < ADULT_AGE


@dataclass(frozen=True, slots=True)
class Hotel:
    """One place to sleep; `nightly` is in CNY, for a room that sleeps two adults and a child."""

    name: str
    area: str
    room: str
    nightly: int
    rating: float
    site: str
    family_rule: str
    station: str
    walk_minutes: int


SPOTS = (
    Spot(
        "新宿夜光剧场",
        ("演出", "灯光"),
        "新宿",
        560,
        11_200,
        4.8,
        18,
        2.0,
        "yakou-theatre.example",
        "全息灯光与现场乐队",
        "本剧场演出含烈酒品鉴环节，未满 18 岁的观众即使有家长陪同也不得入场，场内不设婴儿车停放处。",
        "新宿站东口",
        7,
    ),
    Spot(
        "上野森林动物园",
        ("动物园",),
        "上野",
        120,
        2_400,
        4.7,
        0,
        4.0,
        "ueno-forest-zoo.example",
        "小熊猫馆与夜行动物廊",
        "婴儿车可以推入全园，只有小熊猫馆的参观通道须在入口处折叠或寄存，园方在东门免费出借折叠式儿童推车。",
        "上野站公园口",
        5,
    ),
    Spot(
        "隅田川水族馆",
        ("水族馆",),
        "押上",
        360,
        7_200,
        4.6,
        0,
        2.5,
        "sumida-aqua.example",
        "企鹅环池与水母隧道",
        "馆内全程坡道、婴儿车通行不受限制，喂食表演时须停放在标线以外，三岁以下儿童免票。",
        "押上站",
        4,
    ),
    Spot(
        "台场科学探索馆",
        ("科学馆", "机器人"),
        "台场",
        150,
        3_000,
        4.5,
        0,
        3.5,
        "odaiba-science.example",
        "机器人演示与球形影院",
        "球形影院不接受婴儿车，四岁以上儿童方可入座，其余展区婴儿车可以直接进入。",
        "电讯中心站",
        6,
    ),
    Spot(
        "多摩童话乐园",
        ("乐园",),
        "多摩",
        980,
        19_600,
        4.5,
        0,
        6.0,
        "tama-fairy.example",
        "室内花车巡游与木偶戏",
        "园区在室内，婴儿车须停放在各剧场门外的看管区，身高不足一百厘米的儿童乘船项目须由成人陪同。",
        "多摩中心站",
        8,
    ),
    Spot(
        "武藏野铁道博物馆",
        ("铁道",),
        "大宫",
        210,
        4_200,
        4.4,
        0,
        3.0,
        "musashino-rail.example",
        "模拟驾驶台与蒸汽机车转盘",
        "展厅可推婴儿车，模拟驾驶台限六岁以上儿童，室外小火车每天发放三百张乘车券。",
        "铁道博物馆站",
        3,
    ),
    Spot(
        "浅草老街手作坊",
        ("手作",),
        "浅草",
        420,
        8_400,
        4.3,
        0,
        2.0,
        "asakusa-craft.example",
        "团扇彩绘与食品模型制作",
        "作坊在二楼且没有电梯，婴儿车寄存在一楼店内，五岁以上儿童可以独立参加团扇课程。",
        "浅草站",
        6,
    ),
    Spot(
        "东京湾观景塔",
        ("观景台",),
        "芝浦",
        330,
        6_600,
        4.2,
        0,
        1.5,
        "bay-tower.example",
        "二百米观景台与玻璃地板",
        "观景台电梯可容婴儿车，周末十四时至十七时须折叠，玻璃地板区儿童须由成人牵手。",
        "田町站芝浦口",
        9,
    ),
)

HOTELS = (
    Hotel(
        "银座云顶大酒店",
        "银座",
        "云景家庭套房",
        10_800,
        4.9,
        "ginza-summit.example",
        "六岁以下儿童与家长同床免费，加床每晚另收六百元。",
        "银座站",
        2,
    ),
    Hotel(
        "上野公园家庭旅馆",
        "上野",
        "三人和室",
        2_680,
        4.6,
        "ueno-family-inn.example",
        "每间和室可以加一床儿童被褥，浴场提供儿童踏凳与洗浴用品。",
        "上野站浅草口",
        6,
    ),
    Hotel(
        "浅草川畔酒店",
        "浅草",
        "双床加沙发床房",
        1_980,
        4.3,
        "asakusa-riverside.example",
        "沙发床由前台铺设，婴儿床须在入住三天前预订，数量有限。",
        "浅草站",
        4,
    ),
    Hotel(
        "大井町商务酒店",
        "大井町",
        "经济三人房",
        1_450,
        4.0,
        "oimachi-business.example",
        "房间不设婴儿床，未满十二岁儿童早餐半价。",
        "大井町站",
        3,
    ),
)


def spot(name: str) -> Spot | None:
    """Return the place of that name."""
    return next((each for each in SPOTS if each.name == name.strip()), None)


def hotel(name: str) -> Hotel | None:
    """Return the hotel of that name."""
    return next((each for each in HOTELS if each.name == name.strip()), None)
