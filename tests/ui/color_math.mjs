// Differences of colours as people see them: sRGB, CIELAB, CIEDE2000, and what is seen with a kind of colour blindness.

/**
 * Colours of linear light as they are seen with full protanopia, deuteranopia and tritanopia, after Machado, Oliveira and
 * Fernandes (2009).
 */
const VISIONS = {
  protan: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  deutan: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  tritan: [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
};

/** Linear sRGB to XYZ, and the white of D65. */
const TO_XYZ = [[0.4123908, 0.3575843, 0.1804808], [0.212639, 0.7151687, 0.0721923], [0.0193308, 0.1191948, 0.9505322]];
const WHITE = [0.9504559, 1, 1.0890578];

const times = (matrix, vector) => matrix.map((row) => row.reduce((sum, value, index) => sum + value * vector[index], 0));

/**
 * Returns the linear light of a colour such as `#075cd8`, three numbers from 0 to 1.
 * @param {string} hex
 */
export function rgbOf(hex) {
  const [, digits] = /^#([0-9a-f]{6})$/i.exec(hex.trim());
  return [0, 2, 4].map((at) => {
    const value = parseInt(digits.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
}

/** Returns linear light as somebody with this vision sees it. */
export function seenBy(vision, rgb) {
  if (vision === 'normal') return rgb;
  return times(VISIONS[vision], rgb).map((value) => Math.min(1, Math.max(0, value)));
}

/** Returns the CIELAB values of linear light. */
export function labOf(rgb) {
  const [x, y, z] = times(TO_XYZ, rgb).map((value, index) => {
    const part = value / WHITE[index];
    return part > 216 / 24389 ? Math.cbrt(part) : (part * (24389 / 27) + 16) / 116;
  });
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

/** Returns the contrast of two colours as WCAG defines it, from 1 to 21. */
export function contrast(a, b) {
  const [dark, light] = [a, b].map((rgb) => times([TO_XYZ[1]], rgb)[0]).sort((one, other) => one - other);
  return (light + 0.05) / (dark + 0.05);
}

const degrees = (angle) => (angle * 180) / Math.PI;
const radians = (angle) => (angle * Math.PI) / 180;

/** Returns the difference of two CIELAB colours, CIEDE2000. About 2 is just visible, 15 is plain. */
export function deltaE2000([l1, a1, b1], [l2, a2, b2]) {
  const seventh = (chroma) => Math.sqrt(chroma ** 7 / (chroma ** 7 + 25 ** 7));
  const stretch = 1 + 0.5 * (1 - seventh((Math.hypot(a1, b1) + Math.hypot(a2, b2)) / 2));
  const [c1, c2] = [Math.hypot(a1 * stretch, b1), Math.hypot(a2 * stretch, b2)];
  const hue = (a, b) => (a === 0 && b === 0 ? 0 : (degrees(Math.atan2(b, a)) + 360) % 360);
  const [h1, h2] = [hue(a1 * stretch, b1), hue(a2 * stretch, b2)];
  const turn = c1 * c2 === 0 ? 0 : ((h2 - h1 + 540) % 360) - 180;
  const lightness = (l1 + l2) / 2;
  const chroma = (c1 + c2) / 2;
  const mean = c1 * c2 === 0 ? h1 + h2 : (h1 + turn / 2 + 360) % 360;
  const weight = 1 - 0.17 * Math.cos(radians(mean - 30)) + 0.24 * Math.cos(radians(2 * mean)) + 0.32 * Math.cos(radians(3 * mean + 6)) - 0.2 * Math.cos(radians(4 * mean - 63));
  const dl = (l2 - l1) / (1 + (0.015 * (lightness - 50) ** 2) / Math.sqrt(20 + (lightness - 50) ** 2));
  const dc = (c2 - c1) / (1 + 0.045 * chroma);
  const dh = (2 * Math.sqrt(c1 * c2) * Math.sin(radians(turn) / 2)) / (1 + 0.015 * chroma * weight);
  const rotation = -2 * seventh(chroma) * Math.sin(radians(60 * Math.exp(-(((mean - 275) / 25) ** 2))));
  return Math.sqrt(dl ** 2 + dc ** 2 + dh ** 2 + rotation * dc * dh);
}
