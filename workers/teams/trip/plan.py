"""The plan of this team and the state that its steps share: who owns a field, who adds to it, who only reads it."""

from __future__ import annotations

from schemas.plans import Step
from schemas.shared import FieldCard

_CHOSEN = {"name": "text", "cost": "integer", "artifact": "text"}

FIELDS = (
    FieldCard(name="destination", label="目的地", owner="requirements"),
    FieldCard(name="totalBudget", label="总预算", type="integer", unit="元", owner="requirements"),
    FieldCard(name="attractions", label="景点", type="list", members=_CHOSEN, reducer="append"),
    FieldCard(name="hotels", label="酒店", type="list", members=_CHOSEN, reducer="append"),
    FieldCard(name="spentBudget", label="已花费", type="integer", unit="元", reducer="sum", capacity_of="budget"),
    FieldCard(name="heldBudget", label="已留预算", type="integer", unit="元", capacity_of="budget"),
)

STEPS = (
    Step(
        id="requirements",
        agent="requirements",
        title="需求",
        task="把用户定下的目的地、天数、预算和出行人登记清楚。",
        out_of_scope="景点、住宿和行程安排。",
        expects=("days", "traveler"),
        writes=("destination", "totalBudget"),
    ),
    Step(
        id="spots",
        agent="spots",
        title="景点",
        task="检索适合出行人的景点，每天安排两处，为每一处留好预算并列入行程。",
        out_of_scope="住宿，交通，逐日行程。",
        depends_on=("requirements",),
        needs=("requirements.days", "requirements.traveler"),
        expects=("spotPages",),
        superstep="search",
        reads=("destination", "totalBudget"),
        writes=("attractions", "spentBudget", "heldBudget"),
    ),
    Step(
        id="hotels",
        agent="hotels",
        title="住宿",
        task="比较能住下全家的酒店，按评分选一家合计不超预算的，留好预算并列入行程。",
        out_of_scope="景点，交通，逐日行程。",
        depends_on=("requirements",),
        needs=("requirements.days", "requirements.traveler"),
        expects=("hotelPages",),
        critical=False,
        superstep="search",
        reads=("destination", "totalBudget"),
        writes=("hotels", "spentBudget", "heldBudget"),
    ),
    Step(
        id="final",
        agent="final",
        title="逐日行程",
        task="按天写出行程，写明各项金额与合计；核对第一处景点对儿童和婴儿车的规定，引用原文并注明出处的位置。",
        out_of_scope="增换景点或酒店，交通票务。",
        depends_on=("spots", "hotels"),
        needs=("requirements.days", "requirements.traveler", "spots.spotPages", "hotels.hotelPages?"),
        reads=("destination", "totalBudget", "attractions", "hotels", "spentBudget"),
    ),
)
