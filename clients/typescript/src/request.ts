/** A request whose bytes are fixed before the first of them leaves, so that every attempt sends the same. */

import { digest } from "./digest.js";

export type Body = string | Uint8Array | ArrayBuffer | Blob | URLSearchParams | FormData | ReadableStream<Uint8Array>;

/** What `fetch` takes, apart from what is decided here. */
export type FetchOptions = Omit<RequestInit, "body" | "headers" | "method" | "redirect" | "signal">;

export interface RequestOptions {
  /** Sent as JSON. */
  readonly json?: unknown;
  /** Sent as it is. A `ReadableStream` can be sent once only. */
  readonly body?: Body | undefined;
  readonly headers?: HeadersInit | undefined;
  /** A key of your own: visible ASCII, at most 255 characters. Without it, one is made. */
  readonly key?: string | undefined;
  readonly fetchOptions?: FetchOptions | undefined;
}

/** What is sent, on every attempt alike. */
export interface FixedRequest {
  readonly method: string;
  readonly url: URL;
  readonly headers: Headers;
  readonly body: Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array> | undefined;
  /** The caller's key, if there is one. */
  readonly key: string | undefined;
  readonly fetchOptions: FetchOptions;
  /** What tells this request from another one. */
  digest(): Promise<string>;
}

export const KEY_HEADER = "idempotency-key";
const KEY_CHARACTERS_MAX = 255;
const SAFE_METHODS: ReadonlySet<string> = new Set(["GET", "HEAD", "OPTIONS"]);

/** Whether the method changes nothing, so that it needs no key. */
export function isSafe(method: string): boolean {
  return SAFE_METHODS.has(method);
}

export async function fix(method: string, url: string | URL, options: RequestOptions): Promise<FixedRequest> {
  const headers = new Headers(options.headers);
  const named = unquoted(headers.get(KEY_HEADER) ?? undefined);
  headers.delete(KEY_HEADER);
  const key = options.key ?? named;
  if (key !== undefined) checkKey(key);
  const upper = method.toUpperCase();
  const at = new URL(url, (globalThis.location as Location | undefined)?.href);
  if (!/^https?:$/.test(at.protocol)) throw new TypeError(`call ${at.protocol}: only http and https can be called`);
  const { bytes, type, told } = await encoded(options);
  if (bytes !== undefined && (upper === "GET" || upper === "HEAD")) {
    throw new TypeError(`send ${upper}: it has no body; use another method`);
  }
  // What fetch would refuse as such is a mistake of the caller, and not a failure of the network.
  new Request(at, { ...options.fetchOptions, method: upper, headers });
  if (type !== undefined && !headers.has("content-type")) headers.set("content-type", type);
  return {
    method: upper,
    url: at,
    headers,
    body: bytes,
    key,
    fetchOptions: options.fetchOptions ?? {},
    digest: async () => digest([upper, at.href, ...(await told(headers.get("content-type") ?? ""))]),
  };
}

/** The key as a header carries it: bare where every server reads it alike, else as a structured-field string. */
export function spelled(key: string): string {
  return /^[\x21\x23-\x2b\x2d-\x5b\x5d-\x7e]+$/.test(key) ? key : `"${key.replace(/[\\"]/g, "\\$&")}"`;
}

/** The key that a header carries. */
function unquoted(value: string | undefined): string | undefined {
  const quoted = value === undefined ? null : /^"((?:[^"\\]|\\["\\])*)"$/.exec(value);
  return quoted?.[1]?.replace(/\\(.)/g, "$1") ?? value;
}

function checkKey(key: string): void {
  if (!/^[\x20-\x7e]+$/.test(key) || key.length > KEY_CHARACTERS_MAX || key.trim() !== key) {
    throw new TypeError(`use a key: it must have 1 to ${KEY_CHARACTERS_MAX} visible ASCII characters`);
  }
}

interface Encoded {
  readonly bytes: FixedRequest["body"];
  readonly type?: string | undefined;
  /** What of the content counts: a form is the same whatever its boundary. */
  told(type: string): Promise<readonly (string | Uint8Array)[]>;
}

async function encoded({ json, body }: RequestOptions): Promise<Encoded> {
  if (json !== undefined && body !== undefined) throw new TypeError("send a body: give json or body, not both");
  if (json !== undefined) {
    const text: string | undefined = JSON.stringify(json);
    if (text === undefined) throw new TypeError("send json: the value has no JSON form");
    return whole(new TextEncoder().encode(text), "application/json");
  }
  if (body === undefined) return { bytes: undefined, told: (type) => Promise.resolve([type]) };
  if (body instanceof ReadableStream) {
    const once = "send a stream: it can be read once only, so an operation or a key of your own needs another body";
    return { bytes: body, told: () => Promise.reject(new TypeError(once)) };
  }
  // A response encodes every kind of body as fetch would, and a form only once, so its boundary stays.
  const response = new Response(body as BodyInit);
  const type = response.headers.get("content-type") ?? undefined;
  const bytes = new Uint8Array(await response.arrayBuffer());
  return body instanceof FormData ? { bytes, type, told: () => formParts(body) } : whole(bytes, type);
}

function whole(bytes: Uint8Array<ArrayBuffer>, type: string | undefined): Encoded {
  return { bytes, type, told: (sent) => Promise.resolve([sent, bytes]) };
}

async function formParts(form: FormData): Promise<(string | Uint8Array)[]> {
  const parts: (string | Uint8Array)[] = ["multipart/form-data"];
  for (const [name, value] of form) {
    if (typeof value === "string") parts.push("text", name, value);
    else parts.push("file", name, value.name, value.type, new Uint8Array(await value.arrayBuffer()));
  }
  return parts;
}
