"""Integers of Thrift's compact protocol, in which Parquet writes its footers and page headers."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A whole number written seven bits a byte, lowest first, and the position behind it.

    IndexError where the bytes end within it, ValueError where it has more than 64 bits.
    """
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def signed(data: bytes, at: int) -> tuple[int, int]:
    """A number in zigzag order (0, -1, 1, -2, …), and the position behind it; errors as `varint`."""
    value, at = varint(data, at)
    return (value >> 1) ^ -(value & 1), at
