"""Complex numbers: magnitude and phase of a filter, and a Fourier sum in one pass."""

import numpy as np

import kernelmill as km

omega = np.linspace(0.01, np.pi, 1000)
z = np.exp(1j * omega)  # points on the unit circle


def response(z):
    """Return the response of a second-order low-pass filter at a point of the plane."""
    return (0.0675 + 0.1349 * z + 0.0675 * z * z) / (0.4128 - 1.1430 * z + z * z)


def decibels_and_phase(z):
    """Return the magnitude in decibels and the phase of the response: two results, one pass."""
    h = response(z)
    return 20 * np.log10(abs(h)), np.arctan2(h.imag, h.real)


magnitude, phase = km.transform(z, decibels_and_phase)
cutoff = omega[np.searchsorted(-magnitude, 3)] / np.pi
print(f"at 0: {magnitude[0]:.3f} dB, -3 dB at {cutoff:.3f} of the Nyquist frequency")
print(f"phase from {phase[0]:.3f} to {phase.min():.3f}")

h = response(z)  # an operator is a Python function: on arrays this is NumPy
assert np.allclose(magnitude, 20 * np.log10(np.abs(h)), rtol=1e-12, atol=1e-12)
assert np.allclose(phase, np.angle(h), rtol=1e-12)
assert np.allclose(km.transform(z, response), h, rtol=1e-12)

# Sums of complex numbers: the discrete Fourier transform at one frequency.
signal = np.cos(0.3 * np.arange(4096))
weights = np.exp(-0.3j * np.arange(4096))
found = km.transform_reduce((signal, weights), lambda s, w: s * w)
print(f"share of the frequency 0.3: {abs(found) / 2048:.3f}")
assert np.isclose(found, np.dot(signal, weights), rtol=1e-12)
