"""Back ends and what they share: the native call path, arrays as memory. Operators live above."""
