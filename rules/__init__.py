"""The rule language: text in, values out.

Everything here is pure: no socket, no clock, no event loop. The language is prometheus-adapter's
own, taken whole, with what this project adds; the README's section "Rules" describes it.
"""
