/** One attempt: the request on its way, redirects, and as much of an answer as comes. */

import { Answer } from "./answer.js";
import { joined } from "./digest.js";
import { PROBLEM_BYTES_MAX, hear, isExplained } from "./heard.js";
import { KEY_HEADER, isSafe, spelled } from "./request.js";
import type { FixedRequest } from "./request.js";
import type { Ended } from "./retry.js";

export interface Wire {
  readonly fetch: typeof globalThis.fetch;
  /** The local clock, for dates of servers that do not tell theirs. */
  readonly wall: () => number;
  /** Bytes of an answer that are kept. */
  readonly answerMax: number;
  /** Headers that no other origin gets, beside those that nobody should pass on. */
  readonly sensitive: readonly string[];
  readonly timeoutHeader: string | false;
}

export interface AttemptResult {
  readonly ended: Ended;
  readonly answer?: Answer | undefined;
  readonly error?: unknown;
}

/** What every attempt of a call carries. */
export interface Parcel {
  readonly request: FixedRequest;
  readonly key: string | undefined;
  /** Somebody may have carried it out before, so it is not sent on to where its key must not go. */
  readonly isBound: boolean;
}

const HOPS_MAX = 5;
const NOT_FOR_OTHERS = [KEY_HEADER, "authorization", "cookie", "proxy-authorization"];

/** How far an attempt has come, for whoever stops it in the middle. */
interface Progress {
  started: boolean;
  /** It went on to an origin that must not see the key. */
  keyless: boolean;
  /** Somebody answered who was not shown the key, and must not be called again. */
  spent: boolean;
  response?: Response | undefined;
  received: Uint8Array[];
}

/** Sends the request and reads its answer, until the signal says that it is enough. Never throws. */
export async function attempt(
  wire: Wire,
  parcel: Parcel,
  left: () => number,
  signal: AbortSignal,
): Promise<AttemptResult> {
  const progress: Progress = { started: false, keyless: false, spent: false, received: [] };
  if (signal.aborted) return { ended: { phase: "not_sent" }, error: signal.reason };
  let stop = (): void => {};
  // A fetch that does not listen to its signal is not waited for.
  const stopped = new Promise<AttemptResult>((resolve) => {
    stop = () => resolve(brokenOff(wire, progress, signal.reason));
    signal.addEventListener("abort", stop, { once: true });
  });
  const carried = exchange(wire, parcel, left, signal, progress).catch((error: unknown) =>
    brokenOff(wire, progress, error),
  );
  const result = await Promise.race([carried, stopped]);
  signal.removeEventListener("abort", stop);
  return result;
}

async function exchange(
  wire: Wire,
  { request, key, isBound }: Parcel,
  left: () => number,
  signal: AbortSignal,
  progress: Progress,
): Promise<AttemptResult> {
  const headers = new Headers(request.headers);
  if (key !== undefined) headers.set(KEY_HEADER, spelled(key));
  // A request that changes nothing and has nothing to hide can go wherever it is sent.
  const unbound = isSafe(request.method) && key === undefined && wire.sensitive.length === 0;
  let { url } = request;
  for (let hop = 0; ; hop += 1) {
    if (wire.timeoutHeader !== false) headers.set(wire.timeoutHeader, String(Math.max(0, Math.floor(left()))));
    const init: RequestInit & { duplex?: "half" } = {
      ...request.fetchOptions,
      method: request.method,
      headers,
      body: request.body ?? null,
      redirect: unbound ? "follow" : "manual",
      signal,
    };
    if (request.body instanceof ReadableStream) init.duplex = "half";
    const sending = wire.fetch(url.href, init);
    progress.started = true;
    const response = await sending;
    progress.spent ||= progress.keyless;
    const next = hop < HOPS_MAX ? target(response, request, url) : undefined;
    if (next === undefined || (isBound && next.origin !== url.origin)) {
      progress.response = response;
      return answered(wire, response, progress);
    }
    response.body?.cancel().catch(() => {});
    if (next.origin !== url.origin) {
      for (const name of [...NOT_FOR_OTHERS, ...wire.sensitive]) headers.delete(name);
      progress.keyless = !isSafe(request.method);
    }
    url = next;
  }
}

/** Where a redirect leads, if it is one to follow. A browser hides it, and so it stays the answer. */
function target(response: Response, request: FixedRequest, from: URL): URL | undefined {
  const followed = isSafe(request.method) ? [301, 302, 303, 307, 308] : [307, 308];
  const location = response.headers.get("location");
  if (!followed.includes(response.status) || location === null) return undefined;
  if (request.body instanceof ReadableStream || !URL.canParse(location, from)) return undefined;
  const next = new URL(location, from);
  const downgraded = from.protocol === "https:" && next.protocol !== "https:";
  return downgraded || !/^https?:$/.test(next.protocol) ? undefined : next;
}

async function answered(wire: Wire, response: Response, progress: Progress): Promise<AttemptResult> {
  let truncated = false;
  let size = 0;
  const reader = response.body?.getReader();
  while (reader !== undefined) {
    const { done, value } = await reader.read();
    if (done) break;
    const room = wire.answerMax - size;
    progress.received.push(value.length > room ? value.subarray(0, room) : value);
    size += Math.min(room, value.length);
    if (value.length > room) {
      truncated = true;
      reader.cancel().catch(() => {});
      break;
    }
  }
  const bytes = joined(progress.received);
  const { status, headers } = response;
  const unread = truncated || bytes.length > PROBLEM_BYTES_MAX;
  const heard = hear(status, headers, unread ? undefined : bytes, wire.wall());
  const answer = new Answer(heard, headers, bytes, truncated);
  // What a refusal says in the part that was not read may be that it had happened.
  const phase = unread && isExplained(status, headers) ? "sent" : "answered";
  return { ended: { phase, heard, keyless: progress.keyless }, answer };
}

function brokenOff(wire: Wire, progress: Progress, error: unknown): AttemptResult {
  const { response, keyless } = progress;
  if (response !== undefined) {
    const heard = hear(response.status, response.headers, undefined, wire.wall());
    const answer = new Answer(heard, response.headers, joined(progress.received), true);
    return { ended: { phase: "sent", heard, keyless }, answer, error };
  }
  if (!progress.started || neverLeft(error)) return { ended: { phase: "not_sent", spent: progress.spent }, error };
  return { ended: { phase: "sent", keyless }, error };
}

/** Codes that a name lookup and a connection attempt end with, and nothing that comes later. */
const BEFORE_THE_FIRST_BYTE: ReadonlySet<unknown> = new Set(["ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT"]);

/**
 * Whether an error proves that not one byte left. Only Node says why a fetch failed; a browser says `TypeError`, which
 * proves nothing.
 */
export function neverLeft(error: unknown): boolean {
  const cause = error instanceof Error ? error.cause : undefined;
  if (typeof cause !== "object" || cause === null) return false;
  // When every address of a name was tried, there is one error for each.
  if (cause instanceof AggregateError) return cause.errors.length > 0 && cause.errors.every(failedToConnect);
  return failedToConnect(cause);
}

function failedToConnect(cause: unknown): boolean {
  if (typeof cause !== "object" || cause === null) return false;
  const { code, syscall } = cause as { code?: unknown; syscall?: unknown };
  return BEFORE_THE_FIRST_BYTE.has(code) || (syscall === "connect" && typeof code === "string");
}
