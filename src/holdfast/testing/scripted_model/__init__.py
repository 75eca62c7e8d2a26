"""A model endpoint that answers from a script, over real HTTP on loopback, in the formats of OpenAI and Anthropic.

Use it to test an agent without a model: start a `ScriptedModel`, and let the agent use its `base_url`.
"""

from holdfast.testing.scripted_model.request import ModelMessage, ModelRequest, WireFormat
from holdfast.testing.scripted_model.server import Script, ScriptedModel
from holdfast.testing.scripted_model.steps import (
    Answer,
    Call,
    Endless,
    Fail,
    Hang,
    LongLine,
    RawAnswer,
    Redirect,
    SlowBytes,
    Step,
    Text,
    Think,
    answer,
)

__all__ = [
    "Answer",
    "Call",
    "Endless",
    "Fail",
    "Hang",
    "LongLine",
    "ModelMessage",
    "ModelRequest",
    "RawAnswer",
    "Redirect",
    "Script",
    "ScriptedModel",
    "SlowBytes",
    "Step",
    "Text",
    "Think",
    "WireFormat",
    "answer",
]
