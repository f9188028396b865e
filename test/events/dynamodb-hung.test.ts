/**
 * The event store on a DynamoDB that hangs (I15): a frozen one (SIGSTOP), and one that answers slowly and
 * leaves everything undone. Each event has its answer in time, nothing acknowledged is lost, and a writer of
 * many versions of one key holds up nobody else (I18).
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WAIT_MS_MAX, WRITES_AT_ONCE } from '../../src/events/dynamodb/writing.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import {
  DynamodbProxy,
  type Interference,
  type Meeting,
  sharedDynamodb,
  TestDynamodb,
} from '../support/servers/dynamodb.js';
import { type Contract, openContract, START } from '../support/stores/contract.js';
import { hash, unsigned } from '../support/stores/life.js';

const SECONDS = START / 1_000;
const FAILED = 'error: failed to store event';
/** Twice the bound, for a busy machine. */
const ANSWERED_MS_MAX = 2 * WAIT_MS_MAX;
/** Shorter than the time-out of a request. */
const SLOW_MS = 4_500;

let made = 0;
const note = (draft: Partial<NostrEvent> = {}) => {
  made += 1;
  return unsigned({ kind: 1, pubkey: hash(`${made}`), created_at: SECONDS, content: `${made}`, ...draft });
};
const notes = (count: number) => Array.from({ length: count }, () => note());
const versions = (count: number) =>
  Array.from({ length: count }, (_, at) =>
    note({ kind: 30_023, pubkey: hash('alice'), created_at: at, tags: [['d', 'x']] }),
  );
const idsOf = (events: readonly NostrEvent[]) => events.map(({ id }) => id);

/** A store behind a proxy, which does with the BatchGetItem of an event what the test says. */
async function openBehindProxy() {
  const proxy = await DynamodbProxy.start((await sharedDynamodb()).url);
  const on = await openContract('dynamodb', { endpoints: [proxy.place().endpoint] });
  const readings: { readonly ids: readonly string[]; readonly meeting: Met }[] = [];
  proxy.interfere = ({ operation, body }) => {
    if (operation !== 'BatchGetItem') return undefined;
    const text = JSON.stringify(body);
    return readings.find(({ ids }) => ids.some((id) => text.includes(id)))?.meeting(body);
  };
  return {
    on,
    whenRead: (events: readonly NostrEvent[], meeting: Met) => readings.push({ ids: idsOf(events), meeting }),
    close: async () => {
      await on.close();
      await proxy.stop();
    },
  };
}
type Met = (body: Parameters<Interference>[0]['body']) => Meeting;
type Behind = Awaited<ReturnType<typeof openBehindProxy>>;

function gate(): { readonly opened: Promise<void>; open(): void } {
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open: () => open() };
}

describe('a DynamoDB that hangs', () => {
  let dynamodb: TestDynamodb;
  let on: Contract;
  let slow: Behind;

  beforeAll(async () => {
    dynamodb = await TestDynamodb.start();
    on = await openContract('dynamodb', { endpoints: [dynamodb.url] });
    slow = await openBehindProxy();
  });
  afterAll(async () => {
    dynamodb?.thaw();
    await Promise.all([on?.close(), slow?.close()]);
    await dynamodb?.stop();
  });

  it.concurrent('frozen: every event is answered in time, and nothing acknowledged is lost', async () => {
    const community = on.community();
    const submitAll = (events: readonly NostrEvent[]) =>
      Promise.all(events.map((event) => on.submit(community, event)));
    /** The outcomes, and how long the last one took. */
    const timed = async (events: readonly NostrEvent[]) => {
      const begun = performance.now();
      const outcomes = new Set(await submitAll(events));
      return { outcomes: [...outcomes], ms: performance.now() - begun };
    };
    const before = notes(3);
    expect(await submitAll(before)).toEqual(['stored', 'stored', 'stored']);
    const [many, others, late] = [versions(16), notes(WRITES_AT_ONCE), notes(WRITES_AT_ONCE + 1)];
    dynamodb.freeze();
    try {
      const first = await timed([...many, ...others]);
      expect(first.outcomes).toEqual([FAILED]);
      expect(first.ms).toBeLessThan(ANSWERED_MS_MAX);
      // Each is tried only once now, and what waits behind them is not tried.
      const second = await timed(late);
      expect(second.outcomes).toEqual([FAILED]);
      expect(second.ms).toBeLessThan(20_000);
    } finally {
      dynamodb.thaw();
    }
    // Clients send again what failed, until it is stored; some of it was carried out after all.
    for (let left = [...many, ...others, ...late]; left.length > 0; ) {
      const outcomes = await submitAll(left);
      for (const outcome of outcomes)
        expect([FAILED, 'stored', 'duplicate', 'older'].includes(outcome), outcome).toBe(true);
      left = left.filter((_, at) => outcomes[at] === FAILED);
    }
    const served = idsOf([...before, ...others, ...late, many.at(-1)!]);
    expect((await on.ids(community)).sort()).toEqual(served.sort());
  });

  it.concurrent('slow: an event whose attempt takes too long is answered in time', async () => {
    const community = slow.on.community();
    const events = notes(3);
    // An attempt reads 7 times, so long each.
    let isSlow = true;
    const before = () => new Promise<void>((resolve) => setTimeout(resolve, SLOW_MS));
    slow.whenRead(events, ({ RequestItems }) =>
      isSlow ? { before, answer: { Responses: {}, UnprocessedKeys: RequestItems } } : {},
    );
    const begun = performance.now();
    const outcomes = await Promise.all(events.map((event) => slow.on.submit(community, event)));
    expect(outcomes).toEqual([FAILED, FAILED, FAILED]);
    expect(performance.now() - begun).toBeLessThan(ANSWERED_MS_MAX);
    isSlow = false;
    expect(await slow.on.submit(community, events[0]!)).toBe('stored');
  });

  it.concurrent('slow: an event whose turn has not come was not tried, and may be sent again', async () => {
    const community = slow.on.community();
    // Reading one takes so long that the turn of the last one does not come.
    const many = versions(Math.ceil(WAIT_MS_MAX / SLOW_MS) + 2);
    const [last] = many.slice(-1);
    let isSlow = true;
    const before = () => new Promise<void>((resolve) => setTimeout(resolve, isSlow ? SLOW_MS : 0));
    slow.whenRead(many, () => ({ before }));
    const outcomes = await Promise.all(many.map((event) => slow.on.submit(community, event)));
    expect(outcomes.slice(0, 2)).toEqual(['stored', 'stored']);
    expect(outcomes.at(-1)).toBe('rate-limited: the relay is busy, try again in a moment');
    isSlow = false;
    expect(await slow.on.submit(community, last!)).toBe('stored');
  });
});

describe('one writer', () => {
  let behind: Behind;
  let on: Contract;

  beforeAll(async () => {
    behind = await openBehindProxy();
    on = behind.on;
  });
  afterAll(() => behind?.close());

  const REFUSED: Meeting = { refuse: 'ValidationException' };

  it('with many versions of one key does not hold up other authors', async () => {
    const community = on.community();
    const many = versions(WRITES_AT_ONCE + 5);
    const held = gate();
    behind.whenRead(many, () => ({ ...REFUSED, before: () => held.opened }));
    const outcomes = many.map((event) => on.submit(community, event));
    for (const other of notes(2)) expect(await on.submit(community, other)).toBe('stored');
    expect(on.stores[0]!.depth).toBe(many.length - 1);
    held.open();
    expect(new Set(await Promise.all(outcomes))).toEqual(new Set([FAILED]));
    expect(on.stores[0]!.depth).toBe(0);
  });

  it('without an answer does not fail those that wait while others are stored', async () => {
    const community = on.community();
    const [broken, other, ...more] = notes(WRITES_AT_ONCE + 6);
    const [held, waiting] = [more.slice(0, WRITES_AT_ONCE - 1), more.slice(WRITES_AT_ONCE - 1)];
    const [cut, released] = [gate(), gate()];
    const fail = () => cut.opened.then(() => Promise.reject(new Error('the proxy cuts the connection')));
    behind.whenRead([broken!], () => ({ before: fail }));
    behind.whenRead(held, () => ({ ...REFUSED, before: () => released.opened }));
    const failing = on.submit(community, broken!);
    expect(await on.submit(community, other!)).toBe('stored');
    const failed = held.map((event) => on.submit(community, event));
    const outcomes = waiting.map((event) => on.submit(community, event));
    expect(on.stores[0]!.depth).toBe(waiting.length);
    cut.open();
    expect(await failing).toBe(FAILED);
    released.open();
    expect(await Promise.all(outcomes)).toEqual(waiting.map(() => 'stored'));
    await Promise.all(failed);
  });
});
