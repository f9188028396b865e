import { createHash } from 'node:crypto';
import type { Worker } from 'node:worker_threads';
import { schnorr as noble } from '@noble/curves/secp256k1.js';
import { finalizeEvent } from 'nostr-tools/pure';
import { afterEach, expect, test, vi } from 'vitest';
import { type NostrEvent, serializeEvent, signedPart, verbatimPreimage } from '../rules/event.js';
import { startVerifier, type Verdict, type Verifier, type VerifierOptions, type VerifyJob } from './pool.js';

const secret = new Uint8Array(32).fill(7);

const open: Verifier[] = [];
async function start(options: VerifierOptions): Promise<Verifier> {
  const verifier = await startVerifier(options);
  open.push(verifier);
  return verifier;
}

/** Every thread started since the test began, oldest first. */
const threads: Worker[] = [];
let onThread = (thread: Worker) => void threads.push(thread);
process.on('worker', (thread) => onThread(thread));

afterEach(async () => {
  for (const verifier of open.splice(0)) await verifier.close();
  threads.splice(0);
  onThread = (thread) => void threads.push(thread);
});

function signedJob(content: string): VerifyJob {
  const event = finalizeEvent({ kind: 1, created_at: 1_700_000_000, tags: [['t', 'sea']], content }, secret);
  return { payload: serializeEvent(event) };
}
/** The job with a field of its event changed. */
function changed({ payload }: VerifyJob, field: Partial<NostrEvent>): VerifyJob {
  return { payload: serializeEvent({ ...(JSON.parse(payload) as NostrEvent), ...field }) };
}
const eventOf = ({ payload }: VerifyJob) => JSON.parse(payload) as NostrEvent;

const flip = (hex: string) => (hex[0] === '0' ? '1' : '0') + hex.slice(1);
const right = Array.from({ length: 50 }, (_, index) => signedJob(`ship ${index}: 港 🚢 "quoted"\n`));

/** Jobs of all three verdicts in an irregular order, each with the verdict that it must get. */
function mixedJobs(count: number): { job: VerifyJob; verdict: Verdict }[] {
  return Array.from({ length: count }, (_, index) => {
    const job = right[(index * 31) % right.length]!;
    switch ((index * index + (index >> 3)) % 5) {
      case 0:
        return { job: changed(job, { content: `${eventOf(job).content} ` }), verdict: 'wrong-id' };
      case 1:
        return { job: changed(job, { sig: flip(eventOf(job).sig) }), verdict: 'wrong-signature' };
      default:
        return { job, verdict: 'valid' };
    }
  });
}

for (const backend of ['native', 'wasm'] as const) {
  test(`an event by another library is valid (${backend})`, async () => {
    const verifier = await start({ workers: 1, backend });
    for (const job of right.slice(0, 5)) expect(await verifier.verify(job)).toBe('valid');
  });

  test(`a changed event has a wrong id, a changed author a wrong signature (${backend})`, async () => {
    const verifier = await start({ workers: 1, backend });
    const job = right[0]!;
    const { id, sig } = eventOf(job);
    const verdictOf = (field: Partial<NostrEvent>) => verifier.verify(changed(job, field));
    expect(await verdictOf({ content: 'boat' })).toBe('wrong-id');
    expect(await verdictOf({ id: flip(id) })).toBe('wrong-id');
    expect(await verdictOf({ pubkey: 'f'.repeat(64) })).toBe('wrong-id');
    expect(await verdictOf({ sig: flip(sig) })).toBe('wrong-signature');
    expect(await verdictOf({ sig: eventOf(right[1]!).sig })).toBe('wrong-signature');
    const stranger = finalizeEvent(
      { kind: 1, created_at: 0, tags: [], content: '' },
      new Uint8Array(32).fill(9),
    );
    expect(await verifier.verify({ payload: serializeEvent({ ...stranger, sig }) })).toBe('wrong-signature');
  });
}

test('an id made from verbatim control characters is accepted, another id is not', async () => {
  const verifier = await start({ workers: 1 });
  const job = signedJob('a \u0001 b \u001f c');
  const escaped = signedPart(job.payload).preimage;
  const signedOver = (text: string): VerifyJob => {
    const id = createHash('sha256').update(text).digest();
    const sig = Buffer.from(noble.sign(id, secret)).toString('hex');
    return changed(job, { id: id.toString('hex'), sig });
  };
  expect(await verifier.verify(signedOver(escaped))).toBe('valid');
  expect(await verifier.verify(signedOver(verbatimPreimage(escaped)!))).toBe('valid');
  expect(await verifier.verify(signedOver(escaped.replace('\\u0001', '\u0001')))).toBe('wrong-id');
});

test('each of thousands of jobs gets its own verdict, whichever thread checks it', async () => {
  const verifier = await start({ workers: 3 });
  const jobs = mixedJobs(5_000);
  const verdicts = jobs.map(({ job }) => verifier.verify(job));
  expect(verifier.pending).toBe(5_000);
  expect(await Promise.all(verdicts)).toEqual(jobs.map(({ verdict }) => verdict));
  expect(verifier.pending).toBe(0);
});

test('a verifier names its backend', async () => {
  const verifier = await start({ workers: 2, backend: 'wasm' });
  expect([verifier.backend, verifier.workers, verifier.pending]).toEqual(['wasm', 2, 0]);
});

test('closing rejects every waiting job, and every later one', async () => {
  const verifier = await start({ workers: 1 });
  const verdicts = Promise.allSettled(right.map((job) => verifier.verify(job)));
  await verifier.close();
  expect((await verdicts).every(({ status }) => status === 'rejected')).toBe(true);
  expect(verifier.pending).toBe(0);
  await expect(verifier.verify(right[0]!)).rejects.toThrow('closed');
});

test('closing rejects the jobs that a thread is working on', async () => {
  const verifier = await start({ workers: 2 });
  const jobs = mixedJobs(3_000);
  const verdicts = jobs.map(({ job }) => verifier.verify(job));
  await Promise.race(verdicts);
  await verifier.close();
  const settled = await Promise.allSettled(verdicts);
  expect(settled.some(({ status }) => status === 'rejected')).toBe(true);
  for (const [at, result] of settled.entries()) {
    if (result.status === 'fulfilled') expect(result.value).toBe(jobs[at]!.verdict);
    else expect(String(result.reason)).toContain('closed');
  }
});

test('killed threads are replaced and lose nothing, even when all die at once', async () => {
  const verifier = await start({ workers: 2 });
  const jobs = mixedJobs(3_000);
  const verdicts = jobs.map(({ job }) => verifier.verify(job));
  await Promise.race(verdicts);
  await threads[0]!.terminate();
  await verifier.verify(right[0]!);
  const more = jobs.map(({ job }) => verifier.verify(job));
  await Promise.race(more);
  await Promise.all(threads.map((thread) => thread.terminate()));
  const expected = jobs.map(({ verdict }) => verdict);
  expect(await Promise.all(verdicts)).toEqual(expected);
  expect(await Promise.all(more)).toEqual(expected);
  expect(threads.length).toBe(5);
});

test('a flood of one sender does not delay another, and each gets its own verdict (I18)', async () => {
  const verifier = await start({ workers: 1 });
  const jobs = mixedJobs(600);
  let settled = 0;
  const flood = jobs.map(({ job }) =>
    verifier.verify({ ...job, from: ['198.51.100.7'] }).finally(() => {
      settled += 1;
    }),
  );
  expect(await verifier.verify({ ...right[0]!, from: ['192.0.2.1'] })).toBe('valid');
  expect(settled).toBeLessThan(200);
  expect(await Promise.all(flood)).toEqual(jobs.map(({ verdict }) => verdict));
});

test('a job that ends two threads is rejected; the jobs sent with it get their verdicts', async () => {
  const verifier = await start({ workers: 1 });
  const jobs = mixedJobs(300);
  const before = jobs.slice(0, 150).map(({ job }) => verifier.verify(job));
  // Not text: hashing it throws in the thread.
  const deadly = verifier.verify({ payload: { length: 0 } as unknown as string });
  const after = jobs.slice(150).map(({ job }) => verifier.verify(job));
  await expect(deadly).rejects.toThrow('ended two threads');
  expect(await Promise.all([...before, ...after])).toEqual(jobs.map(({ verdict }) => verdict));
  expect(threads.length).toBe(3);
});

test('a thread that hangs is replaced, and another thread finishes its jobs', async () => {
  // Messages to the first thread do not arrive, so it never answers.
  onThread = (thread) => {
    threads.push(thread);
    if (threads.length === 1) thread.postMessage = () => undefined;
  };
  const verifier = await start({ workers: 1, answerMsMax: 2_000 });
  const jobs = mixedJobs(100);
  const verdicts = await Promise.all(jobs.map(({ job }) => verifier.verify(job)));
  expect(verdicts).toEqual(jobs.map(({ verdict }) => verdict));
  expect(threads.length).toBeGreaterThanOrEqual(2);
});

test('threads that never get ready make the start fail, after a limited number of attempts', async () => {
  let started = 0;
  onThread = (thread) => {
    started++;
    void thread.terminate();
  };
  await expect(startVerifier({ workers: 1 })).rejects.toThrow('keep dying');
  expect(started).toBe(9);
});

test('events that are checked at once get the same verdicts as those that threads check', async () => {
  const verifier = await start({ workers: 1, checksAtOnce: true });
  for (const { job, verdict } of mixedJobs(60)) expect(await verifier.verify(job)).toBe(verdict);
  const burst = mixedJobs(200);
  expect(await Promise.all(burst.map(({ job }) => verifier.verify(job)))).toEqual(
    burst.map(({ verdict }) => verdict),
  );
});

test('an event that could be checked at once does not overtake one that waits for a thread', async () => {
  const verifier = await start({ workers: 1, checksAtOnce: true });
  const order: string[] = [];
  const large = signedJob('x'.repeat(60_000));
  const jobs = [large, right[0]!, right[1]!];
  const names = ['large', 'first', 'second'];
  await Promise.all(
    jobs.map((job, at) =>
      verifier.verify(job).then((verdict) => {
        expect(verdict).toBe('valid');
        order.push(names[at]!);
      }),
    ),
  );
  expect(order).toEqual(names);
});

test('nor one that a slow thread has had for long', async () => {
  const verifier = await start({ workers: 1, checksAtOnce: true });
  const order: string[] = [];
  const note = (name: string) => () => order.push(name);
  const slow = verifier.verify(signedJob('x'.repeat(60_000))).then(note('slow'));
  // The thread has it, and cannot answer before this step ends.
  await new Promise(setImmediate);
  const now = performance.now.bind(performance);
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => now() + 60_000);
  const next = verifier.verify(right[0]!).then(note('next'));
  clock.mockRestore();
  await Promise.all([slow, next]);
  expect(order).toEqual(['slow', 'next']);
});
