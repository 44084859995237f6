"""The delivery lab: every way to ship one model, produced, run in processes of their own, checked and measured."""
