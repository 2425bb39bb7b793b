"""The two requests of the demo, of one session: an offer is made and said; then another one is asked for that would contradict it."""

REQUESTS = (
    "我是客户 C-0817 王宁，手机尾号 6621。这几个月账单一次还不清，催得我快扛不住了，能不能给一个分期的方案？",
    "我是客户 C-0817 王宁，手机尾号 6621。上次说的方案还是太高，我想改成每月还 400 元。",
)
QUESTION = "最低还款额怎么算？"
"""A plain question: it wakes nobody."""
