"""apart: sent something that is no message"""

import os

# What the evaluator waits for, from somebody who was not asked: a header that is no object.
for number in os.listdir("/proc/self/fd"):
    if int(number) > 2 and os.readlink(f"/proc/self/fd/{number}").startswith("pipe:"):
        os.write(int(number), (2).to_bytes(4, "little") + b"[]")
