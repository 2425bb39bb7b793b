"""The plan of this team: three steps, what each needs of the others, and what is out of its scope."""

from __future__ import annotations

from schemas.plans import Step

STEPS = (
    Step(
        id="aftersales",
        agent="aftersales",
        title="保修与掉线处理",
        task="查出订单对应的商品和签收日期，核验今天的保修状态，并对扫地机频繁掉线给出处理建议。",
        out_of_scope="换新型号的选择，与音箱的联动。",
        expects=("productName", "warrantyStatus"),
    ),
    Step(
        id="product",
        agent="product",
        title="换新候选",
        task="以在用型号为参照，选出预算内的换新候选，并说明它们与在用型号的规格差异。",
        out_of_scope="保修与维修，与音箱的联动。",
        depends_on=("aftersales",),
        needs=("aftersales.productName", "aftersales.*?"),
        expects=("candidateSetComplete", "candidateCount"),
    ),
    Step(
        id="iot",
        agent="iot",
        title="音箱联动",
        task="逐一核实给出的候选能否与用户已有的智能音箱联动。在用型号不是候选。",
        out_of_scope="保修与维修，价格，买哪一款。",
        depends_on=("product",),
        needs=("product.*", "aftersales.productName"),
    ),
)
