/** A whole answer, or what came of it. */

import type { Heard } from "./heard.js";

export class Answer {
  /** Zero for a redirect that the browser hides. */
  readonly status: number;
  readonly headers: Headers;
  /** Its end is missing: it was cut off, or longer than the limit. */
  readonly truncated: boolean;
  /** What it tells of the call. */
  readonly heard: Heard;
  readonly #bytes: Uint8Array;

  constructor(heard: Heard, headers: Headers, bytes: Uint8Array, truncated: boolean) {
    this.status = heard.status;
    this.headers = headers;
    this.truncated = truncated;
    this.heard = heard;
    this.#bytes = bytes;
  }

  bytes(): Uint8Array {
    return this.#bytes.slice();
  }

  text(): string {
    return new TextDecoder().decode(this.#bytes);
  }

  /** Throws a `SyntaxError` if it is no JSON. */
  json(): unknown {
    return JSON.parse(this.text());
  }
}
