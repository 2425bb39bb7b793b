"""The tools of the three specialists, over this team's data. A domain's tools see that domain's data only.

Today and the budget come from the context, never from a model. A search returns the same bytes for the same finding, whatever
the wording: that is what makes a repetition visible.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta, timezone
from typing import Annotated

from pydantic import Field

from workers.agents.tools import Tool, ToolContext
from workers.teams.bitmall import data, warranty
from workers.teams.bitmall.returns import (
    Bundle,
    Candidate,
    CatalogueReturn,
    Compared,
    ComparisonReturn,
    DocumentsReturn,
    FoundDocument,
    LinkageReturn,
    OrderReturn,
    WarrantyReturn,
)

_SHOP_TIME = timezone(timedelta(hours=8))
"""Days are counted in China, which has one time zone and no summer time."""

OrderId = Annotated[str, Field(description="订单号")]
Query = Annotated[str, Field(description="要查的内容，几个关键词")]
ModelName = Annotated[str, Field(description="型号全名")]


def _order(order_id: str) -> data.Order | None:
    return next((order for order in data.ORDERS if order.order_id == order_id.strip()), None)


def query_order(orderId: OrderId) -> OrderReturn:
    """按订单号查询商品、实付价格、签收日期和订单状态。"""
    order = _order(orderId)
    if order is None:
        return OrderReturn(error="没有这个订单号")
    return OrderReturn(order_id=order.order_id, product=order.product, price=order.price, sign_time=order.signed, status=order.status)


def check_warranty(context: ToolContext, orderId: OrderId) -> WarrantyReturn:
    """核验一个订单今天的保修状态、保修截止日和七天无理由退货状态。"""
    order = _order(orderId)
    if order is None:
        return WarrantyReturn(error="没有这个订单号")
    today = context.now().astimezone(_SHOP_TIME).date()
    return WarrantyReturn(
        order_id=order.order_id,
        warranty_status=warranty.warranty_status(order.signed, today),
        warranty_end_date=warranty.warranty_end(order.signed),
        no_reason_return_status=warranty.return_status(order.signed, today),
        as_of=today,
    )


def search_aftersales(query: Query) -> DocumentsReturn:
    """检索售后政策与故障处理办法。"""
    return DocumentsReturn(documents=_found(data.AFTERSALES_DOCUMENTS, query))


def search_catalogue(context: ToolContext, query: Query) -> CatalogueReturn:
    """检索在售目录，返回预算内的全部在售型号。"""
    budget = context.constraints.get("budget")
    affordable = tuple(
        Candidate(name=each.name, price=each.price, app_control_status=each.app_control_status)
        for each in data.CATALOGUE
        if not isinstance(budget, int | float) or each.price <= budget
    )
    return CatalogueReturn(candidates=affordable, catalog_scope=data.ROBOTS_ON_SALE, catalog_complete=True, candidate_count=len(affordable))


def compare_products(modelA: ModelName, modelB: ModelName) -> ComparisonReturn:
    """并列两个型号的规格。"""
    for name in (modelA, modelB):
        if name not in data.SPECIFICATIONS:
            return ComparisonReturn(error=f"没有型号 {name} 的规格")
    return ComparisonReturn(
        product_a=Compared(name=modelA, specification=data.SPECIFICATIONS[modelA]),
        product_b=Compared(name=modelB, specification=data.SPECIFICATIONS[modelB]),
    )


def search_linkage(query: Query) -> LinkageReturn:
    """检索设备与音箱的联动资料。"""
    documents = _found(data.LINKAGE_DOCUMENTS, query)
    known = data.LINKAGES if documents else ()
    return LinkageReturn(
        documents=documents, bundles=tuple(Bundle(device=each.device, speaker=each.speaker, status=each.status) for each in known)
    )


def _found(documents: Sequence[data.Document], query: str) -> tuple[FoundDocument, ...]:
    """Return the documents that share a keyword with the query, in their own order."""
    wanted = query.casefold()
    return tuple(
        FoundDocument(id=each.id, title=each.title, text=each.text)
        for each in documents
        if any(keyword.casefold() in wanted for keyword in each.keywords)
    )


AFTERSALES_TOOLS = (
    Tool("queryOrder", query_order),
    Tool("checkWarranty", check_warranty),
    Tool("searchKnowledge", search_aftersales, source="documents.0.id"),
)
PRODUCT_TOOLS = (Tool("searchKnowledge", search_catalogue, source="catalogScope"), Tool("compareProducts", compare_products))
LINKAGE_TOOLS = (Tool("searchKnowledge", search_linkage, source="documents.0.id"),)
