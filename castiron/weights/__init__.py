"""Files of weights outside of artifacts: .safetensors and burn's .bpk, read, written and turned into each other."""

from castiron.weights.convert import Converted as Converted
from castiron.weights.convert import convert as convert
