"""The request that the demo asks: three days in Tokyo with a child, on a budget."""

REQUEST = "帮我做一份 3 天东京亲子游规划，两个大人带一个 5 岁的孩子，预算 2 万元。"
