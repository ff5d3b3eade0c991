// Makes a screenshot small: a PNG of 256 colours at most, a third of the size of one of all colours.
import { crc32, deflateSync, inflateSync } from 'node:zlib';

const SIGNATURE = Buffer.from([137, 80, 78, 71, 13, 10, 26, 10]);

/** Returns the chunks of a PNG. */
function chunksOf(png) {
  const chunks = [];
  for (let at = SIGNATURE.length; at < png.length; ) {
    const length = png.readUInt32BE(at);
    chunks.push({ type: png.toString('latin1', at + 4, at + 8), data: png.subarray(at + 8, at + 8 + length) });
    at += length + 12;
  }
  return chunks;
}

/** Returns a chunk with its length and its checksum. */
function chunk(type, data) {
  const body = Buffer.concat([Buffer.from(type, 'latin1'), data]);
  const whole = Buffer.alloc(body.length + 8);
  whole.writeUInt32BE(data.length, 0);
  body.copy(whole, 4);
  whole.writeUInt32BE(crc32(body), body.length + 4);
  return whole;
}

/** Returns the value that the filter of a row expects, of the bytes to the left, above, and above to the left. */
function expected(filter, left, above, corner) {
  switch (filter) {
    case 1:
      return left;
    case 2:
      return above;
    case 3:
      return (left + above) >> 1;
    case 4: {
      const guess = left + above - corner;
      const [a, b, c] = [Math.abs(guess - left), Math.abs(guess - above), Math.abs(guess - corner)];
      return a <= b && a <= c ? left : b <= c ? above : corner;
    }
    default:
      return 0;
  }
}

/** Takes the filters off: returns the bytes of the pixels, row by row. */
function pixelsOf(raw, width, height, size) {
  const stride = width * size;
  const pixels = Buffer.alloc(stride * height);
  for (let y = 0; y < height; y += 1) {
    const filter = raw[y * (stride + 1)];
    for (let x = 0; x < stride; x += 1) {
      const at = y * stride + x;
      const left = x >= size ? pixels[at - size] : 0;
      const above = y > 0 ? pixels[at - stride] : 0;
      const corner = x >= size && y > 0 ? pixels[at - stride - size] : 0;
      pixels[at] = raw[y * (stride + 1) + 1 + x] + expected(filter, left, above, corner);
    }
  }
  return pixels;
}

/** Squared distance from which on two colours are not alike. */
const UNLIKE = 200;

/** Returns 256 colours, the frequent ones first and none like another, and for each colour the number of the nearest. */
function paletteOf(colors) {
  const counts = new Map();
  for (const color of colors) counts.set(color, (counts.get(color) ?? 0) + 1);
  const distance = (a, b) => ((a >> 16) - (b >> 16)) ** 2 + (((a >> 8) & 255) - ((b >> 8) & 255)) ** 2 + ((a & 255) - (b & 255)) ** 2;
  const palette = [];
  for (const [color] of [...counts].sort((a, b) => b[1] - a[1])) {
    if (palette.length < 256 && palette.every((other) => distance(color, other) >= UNLIKE)) palette.push(color);
  }
  const nearest = (color) => palette.reduce((best, other, index) => (distance(color, other) < distance(color, palette[best]) ? index : best), 0);
  return { palette, numbers: new Map([...counts.keys()].map((color) => [color, nearest(color)])) };
}

/**
 * Returns a picture of at most 256 colours. Transparency is dropped: a screenshot has none.
 * @param {Buffer} png with 8 bits a channel, not interlaced, as browsers write them
 */
export function withPalette(png) {
  const chunks = chunksOf(png);
  const header = chunks.find((each) => each.type === 'IHDR').data;
  const [width, height, bits, kind, interlaced] = [header.readUInt32BE(0), header.readUInt32BE(4), header[8], header[9], header[12]];
  if (bits !== 8 || ![2, 6].includes(kind) || interlaced) throw new Error(`a PNG of kind ${kind} with ${bits} bits is not made smaller here`);
  const size = kind === 6 ? 4 : 3;
  const raw = inflateSync(Buffer.concat(chunks.filter((each) => each.type === 'IDAT').map((each) => each.data)));
  const pixels = pixelsOf(raw, width, height, size);
  const colors = Array.from({ length: width * height }, (_, index) => pixels.readUIntBE(index * size, 3));
  const { palette, numbers } = paletteOf(colors);
  const rows = Buffer.alloc((width + 1) * height);
  colors.forEach((color, index) => (rows[Math.floor(index / width) * (width + 1) + 1 + (index % width)] = numbers.get(color)));
  const indexed = Buffer.from(header);
  indexed[9] = 3;
  const entries = Buffer.from(palette.flatMap((color) => [color >> 16, (color >> 8) & 255, color & 255]));
  return Buffer.concat([SIGNATURE, chunk('IHDR', indexed), chunk('PLTE', entries), chunk('IDAT', deflateSync(rows, { level: 9 })), chunk('IEND', Buffer.alloc(0))]);
}
