// NVRTC knows what a kernel may use; the host half of the file includes the real header.
#pragma once
