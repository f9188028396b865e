/**
 * Fair turns on the event loop for the work of clients: opening their connections, reading and sending their
 * answers (I18). In each pass of the event loop the turns of all clients together take about 1 ms. What does
 * not fit waits for the next pass, and the community, in it the network (an IPv6 /48), and in it the address
 * that has used least is next. So a burst of one network delays a client of another by one turn, however
 * large the burst is. Of greedy clients (work.ts) a pass has one turn, or some short ones, and they rest
 * between passes (greedy-share.ts): each answer to another client takes several passes, and each of them is
 * as long as the turns in it.
 *
 * Bounded by those who ask (I14): an HTTP request waits for one turn, a websocket for one of each query
 * class.
 */
import { FairTags, isBefore, type Shares } from './fair-tags.js';
import { GreedyShare, RestAlarm } from './greedy-share.js';

/** Measured as a whole: a turn that has begun is finished. */
const PASS_MS = 1;
/** The same for all greedy clients. */
const GREEDY_PASS_MS = 0.25;

/** Whose turn it is. */
export interface TurnClient {
  readonly community: number;
  readonly networkKey: string;
  readonly rateKey: string;
}

/** The waiting turns of one address in one community. */
interface Line extends Shares {
  readonly client: TurnClient;
  isGreedy: boolean;
  readonly waiting: (() => number)[];
}

export class LoopTurns {
  private readonly lines = new Map<string, Line>();
  private readonly communities = new FairTags();
  private readonly networks = new FairTags();
  private readonly addresses = new FairTags();
  /** Of this pass, by greedy clients and by the others. */
  private greedyMs = 0;
  private modestMs = 0;
  private isScheduled = false;
  private readonly alarm: RestAlarm;

  /** `now`: a monotonic clock in milliseconds. */
  constructor(
    readonly isGreedy: (client: TurnClient) => boolean = () => false,
    private readonly share = new GreedyShare(),
    private readonly now: () => number = () => performance.now(),
  ) {
    this.alarm = new RestAlarm(share, () => this.schedule());
  }

  /** Runs the work at the client's turn: at once if nobody waits and this pass has time left. */
  run<T>(client: TurnClient, work: () => T): Promise<T> {
    return new Promise<T>((resolve, reject) =>
      this.take(client, () => {
        const begunMs = this.now();
        try {
          resolve(work());
        } catch (error) {
          reject(error as Error);
        }
        return this.now() - begunMs;
      }),
    );
  }

  /** Resolves at the client's turn. For work that cannot be measured here: it is taken to cost this much. */
  wait(client: TurnClient, costMs: number): Promise<void> {
    return new Promise((resolve) =>
      this.take(client, () => {
        resolve();
        return costMs;
      }),
    );
  }

  /** `turn` returns what it took. */
  private take(client: TurnClient, turn: () => number): void {
    const line = this.lineOf(client);
    if (!line.isGreedy) this.share.noteOther();
    if (this.lines.size === 0 && this.hasTimeFor(line)) {
      this.count(line, turn());
      return;
    }
    line.waiting.push(turn);
    this.lines.set(keyOf(client), line);
    this.schedule();
  }

  private lineOf(client: TurnClient): Line {
    return (
      this.lines.get(keyOf(client)) ?? {
        client,
        isGreedy: this.isGreedy(client),
        waiting: [],
        community: this.communities.of(String(client.community)),
        network: this.networks.of(client.networkKey),
        address: this.addresses.of(client.rateKey),
      }
    );
  }

  private count({ community, network, address, isGreedy }: Line, tookMs: number): void {
    if (isGreedy) this.share.use(tookMs);
    if (isGreedy) this.greedyMs += tookMs;
    else this.modestMs += tookMs;
    this.communities.use(community, tookMs);
    this.networks.use(network, tookMs);
    this.addresses.use(address, tookMs);
    this.schedule();
  }

  private schedule(): void {
    if (this.isScheduled) return;
    this.isScheduled = true;
    setImmediate(() => this.pass());
  }

  private hasTimeFor({ isGreedy }: Line): boolean {
    if (!isGreedy) return this.modestMs < PASS_MS;
    return this.greedyMs < GREEDY_PASS_MS && this.share.restMs() === 0;
  }

  private pass(): void {
    this.isScheduled = false;
    this.greedyMs = 0;
    this.modestMs = 0;
    // Greedy clients come last, and have at least one turn unless they rest.
    for (const isGreedy of [false, true])
      for (let next = this.next(isGreedy); next && this.hasTimeFor(next[1]); next = this.next(isGreedy))
        this.serve(...next);
    if (this.lines.size === 0) return;
    if (this.next(false) === undefined) this.alarm.set();
    else this.schedule();
  }

  private next(isGreedy: boolean): [string, Line] | undefined {
    let first: [string, Line] | undefined;
    for (const entry of this.lines)
      if (entry[1].isGreedy === isGreedy && (first === undefined || isBefore(entry[1], first[1])))
        first = entry;
    return first;
  }

  private serve(key: string, line: Line): void {
    const turn = line.waiting.shift()!;
    if (line.waiting.length === 0) this.lines.delete(key);
    this.count(line, turn());
    line.isGreedy = this.isGreedy(line.client);
  }
}

function keyOf({ community, rateKey }: TurnClient): string {
  return `${community}/${rateKey}`;
}
