/** The methods of HTTP, over one way to send. */

import type { Outcome } from "./outcome.js";
import type { RequestOptions } from "./request.js";
import type { ClassName, Policy } from "./schedule.js";

export interface SendOptions extends RequestOptions {
  /** Another class than the client's, or a policy of your own. */
  readonly class?: ClassName | Policy | undefined;
  /** The time for everything, in milliseconds. */
  readonly total?: number | undefined;
  /** The time for one attempt, in milliseconds. */
  readonly attempt?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

export abstract class Sender<Options extends SendOptions = SendOptions> {
  /** Resolves with how it ended, whatever happened. Rejects only for mistakes in the call itself, with a `TypeError`. */
  abstract send(method: string, url: string | URL, options?: Options): Promise<Outcome>;

  get(url: string | URL, options?: Options): Promise<Outcome> {
    return this.send("GET", url, options);
  }

  post(url: string | URL, options?: Options): Promise<Outcome> {
    return this.send("POST", url, options);
  }

  put(url: string | URL, options?: Options): Promise<Outcome> {
    return this.send("PUT", url, options);
  }

  patch(url: string | URL, options?: Options): Promise<Outcome> {
    return this.send("PATCH", url, options);
  }

  delete(url: string | URL, options?: Options): Promise<Outcome> {
    return this.send("DELETE", url, options);
  }
}
