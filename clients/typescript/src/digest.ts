/** Random names and digests, from WebCrypto. */

/** A version 4 UUID. `randomUUID` is only there on secure pages, random bytes are everywhere. */
export function uuid(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  return hex(bytes).replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

/** Whether digests can be had: browsers keep them from pages that came over plain http, except from localhost. */
export function canDigest(): boolean {
  return (globalThis.crypto as Crypto | undefined)?.subtle !== undefined;
}

/** SHA-256 of the parts, each with its length, so that no two lists of parts are alike. */
export async function digest(parts: readonly (string | Uint8Array)[]): Promise<string> {
  if (!canDigest()) {
    throw new TypeError("digest a request: no WebCrypto here; serve the page over https or from localhost");
  }
  const encoder = new TextEncoder();
  const pieces: Uint8Array[] = [];
  for (const part of parts) {
    const bytes = typeof part === "string" ? encoder.encode(part) : part;
    pieces.push(encoder.encode(`${bytes.length}:`), bytes);
  }
  return hex(await sha256(joined(pieces)));
}

/** The digits that stand for a key in logs: the same ones that the gateway shows. */
export async function keyDigest(key: string): Promise<string> {
  return hex(await sha256(new TextEncoder().encode(key))).slice(0, 12);
}

export function joined(pieces: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}

async function sha256(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
}

function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
