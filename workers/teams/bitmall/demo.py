"""The request that the demo answers: a customer with a vacuum that drops its connection, and a thought of replacing it."""

REQUEST = (
    "订单 88231 的扫地机老掉线，帮我查保修并给出处理建议；如果要换新，预算 2000 元以内，希望能和家里的比特 SoundBox Mini 智能音箱联动。"
)
