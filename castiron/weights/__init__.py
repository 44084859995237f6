"""Files of weights outside of artifacts: .safetensors and burn's .bpk, read, written and turned into each other."""

from castiron.weights.conversion import FORMATS as FORMATS
from castiron.weights.conversion import Converted as Converted
from castiron.weights.conversion import convert as convert
from castiron.weights.conversion import read as read
