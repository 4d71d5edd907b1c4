"""What runs inside worker processes, and the two modules (`wire`, `literals`) that both ends share.

These files import the standard library only: a worker is a small interpreter that never sees the rest of the
package, so that forking it stays cheap.
"""
