/**
 * The node's own websocket (NIP-01, NIP-42, NIP-45). One connection for the whole page; it connects again by
 * itself, opens its subscriptions again, and proves the member's key when the node asks for that.
 */
import type { VerifiedEvent } from 'nostr-tools/pure';
import { relayUrl } from '../shared/place.js';
import { addressOfNode, currentMember, onMemberChange, sign } from './session.js';

export interface Filter {
  readonly ids?: readonly string[];
  readonly authors?: readonly string[];
  readonly kinds?: readonly number[];
  readonly '#t'?: readonly string[];
  readonly '#e'?: readonly string[];
  readonly '#E'?: readonly string[];
  readonly since?: number;
  readonly until?: number;
  readonly limit?: number;
}

export interface Subscriber {
  readonly onEvent: (event: VerifiedEvent) => void;
  readonly onStored?: () => void;
  /** The node refuses it, with the reason on the wire. It may be opened again later. */
  readonly onRefused?: (reason: string) => void;
}

interface Open {
  readonly filters: readonly Filter[];
  readonly to: Subscriber;
}

const WAIT_MS_FIRST = 500;
const WAIT_MS_MAX = 15_000;
const ANSWER_MS_MAX = 20_000;

type Answer = (accepted: boolean, message: string) => void;

class RelaySocket {
  private socket: WebSocket | undefined;
  private waitMs = WAIT_MS_FIRST;
  private serial = 0;
  private challenge: string | undefined;
  private proving: Promise<boolean> | undefined;
  private readonly open = new Map<string, Open>();
  private readonly answers = new Map<string, Answer>();
  private readonly counts = new Map<string, (count: number | undefined) => void>();
  /** Frames that wait for the connection. */
  private waiting: string[] = [];

  constructor() {
    // Another key has other rights: the connection starts again.
    onMemberChange(() => this.socket?.close());
  }

  subscribe(filters: readonly Filter[], to: Subscriber): () => void {
    this.serial += 1;
    const id = `s${this.serial}`;
    this.open.set(id, { filters, to });
    this.send(['REQ', id, ...filters]);
    return () => {
      if (this.open.delete(id) && this.socket?.readyState === WebSocket.OPEN)
        this.socket.send(JSON.stringify(['CLOSE', id]));
    };
  }

  /** The stored events of these filters. */
  query(filters: readonly Filter[]): Promise<VerifiedEvent[]> {
    return new Promise((resolve) => {
      const found: VerifiedEvent[] = [];
      const done = () => {
        clearTimeout(timer);
        close();
        resolve(found);
      };
      const timer = setTimeout(done, ANSWER_MS_MAX);
      const onEvent = (event: VerifiedEvent) => found.push(event);
      const close = this.subscribe(filters, { onEvent, onStored: done, onRefused: done });
    });
  }

  /** NIP-45; undefined if the node does not count this. */
  count(filter: Filter): Promise<number | undefined> {
    this.serial += 1;
    const id = `c${this.serial}`;
    return new Promise((resolve) => {
      const timer = setTimeout(() => this.counts.get(id)?.(undefined), ANSWER_MS_MAX);
      this.counts.set(id, (count) => {
        clearTimeout(timer);
        this.counts.delete(id);
        resolve(count);
      });
      this.send(['COUNT', id, filter]);
    });
  }

  /** Resolves when the node has accepted it; a refusal is thrown with its reason. */
  async publish(event: VerifiedEvent): Promise<void> {
    const [accepted, message] = await this.offer(event);
    if (accepted) return;
    if (message.startsWith('auth-required:') && (await this.prove())) {
      const [again, reason] = await this.offer(event);
      if (again) return;
      throw new RelayRefusal(reason);
    }
    throw new RelayRefusal(message);
  }

  private offer(event: VerifiedEvent): Promise<[boolean, string]> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => this.answers.get(event.id)?.(false, 'error: no answer'), ANSWER_MS_MAX);
      this.answers.set(event.id, (accepted, message) => {
        clearTimeout(timer);
        this.answers.delete(event.id);
        resolve([accepted, message]);
      });
      this.send(['EVENT', event]);
    });
  }

  private send(frame: unknown): void {
    const text = JSON.stringify(frame);
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(text);
    else {
      // Subscriptions are sent when it is open.
      if ((frame as string[])[0] !== 'REQ') this.waiting.push(text);
      this.connect();
    }
  }

  private connect(): void {
    if (this.socket !== undefined) return;
    const socket = new WebSocket(relayUrl);
    this.socket = socket;
    socket.onopen = () => {
      this.waitMs = WAIT_MS_FIRST;
      for (const [id, { filters }] of this.open) socket.send(JSON.stringify(['REQ', id, ...filters]));
      for (const text of this.waiting.splice(0)) socket.send(text);
    };
    socket.onmessage = ({ data }) => this.take(JSON.parse(String(data)) as unknown[]);
    socket.onclose = () => {
      this.socket = undefined;
      this.challenge = undefined;
      this.proving = undefined;
      if (this.open.size === 0 && this.waiting.length === 0) return;
      setTimeout(() => this.connect(), this.waitMs);
      this.waitMs = Math.min(this.waitMs * 2, WAIT_MS_MAX);
    };
  }

  private take([verb, id, ...rest]: unknown[]): void {
    const key = String(id);
    if (verb === 'EVENT') this.open.get(key)?.to.onEvent(rest[0] as VerifiedEvent);
    if (verb === 'EOSE') this.open.get(key)?.to.onStored?.();
    if (verb === 'OK') this.answers.get(key)?.(rest[0] === true, String(rest[1] ?? ''));
    if (verb === 'COUNT') this.counts.get(key)?.((rest[0] as { count?: number }).count);
    if (verb === 'CLOSED') void this.refused(key, String(rest[0] ?? ''));
    if (verb === 'AUTH') {
      this.challenge = key;
      if (currentMember() !== undefined) void this.prove();
    }
  }

  private async refused(id: string, reason: string): Promise<void> {
    this.counts.get(id)?.(undefined);
    const known = this.open.get(id);
    if (known === undefined) return;
    if (reason.startsWith('auth-required:') && (await this.prove())) {
      if (this.open.has(id)) this.send(['REQ', id, ...known.filters]);
      return;
    }
    known.to.onRefused?.(reason);
  }

  /** Answers the challenge of this connection, once; false if nobody is signed in, or it was not accepted. */
  private prove(): Promise<boolean> {
    if (currentMember() === undefined || this.challenge === undefined) return Promise.resolve(false);
    this.proving ??= this.answerChallenge(this.challenge).catch(() => false);
    return this.proving;
  }

  private async answerChallenge(challenge: string): Promise<boolean> {
    const tags = [
      ['relay', await addressOfNode()],
      ['challenge', challenge],
    ];
    const event = await sign({ kind: 22_242, content: '', tags });
    return new Promise((resolve) => {
      this.answers.set(event.id, (accepted) => {
        this.answers.delete(event.id);
        resolve(accepted);
      });
      this.send(['AUTH', event]);
    });
  }
}

/** The words after the prefix are for people, such as "restricted: consent required". */
export class RelayRefusal extends Error {
  get needsConsent(): boolean {
    return this.message === 'restricted: consent required';
  }
}

export const relay = new RelaySocket();
