/**
 * Writes the events that wait, so many at once, and settles each exactly once (I2). However long DynamoDB
 * hangs, an event waits WAIT_MS_MAX at most (I15). A write that is under way then may still be carried out:
 * the client gets an error, and finds the event if it sends it again. An event whose turn has not come by
 * then, while others were decided, was not tried: the relay is busy.
 */
import { inTime, isNoAnswer } from '../../limits/in-time.js';
import { RareLine } from '../../node/log.js';
import { addressOf } from '../rules/classify.js';
import type { Submission } from '../rules/facts.js';
import { BUSY, type Outcome, type Refusal, refusal } from '../rules/reply.js';
import type { EventStore } from '../store.js';
import { FAILED, type SubmitOptions, type Submitted, submitOne } from './submit.js';
import { type WaitingEvent, WaitingEvents } from './waiting.js';

/** Events that are written at the same time. */
export const WRITES_AT_ONCE = 64;
/** As long as the lane of PostgreSQL tries. After that the clients get an error. */
export const WAIT_MS_MAX = 30_000;

interface Waiting extends WaitingEvent {
  readonly submission: Submission;
  /** By a clock that does not jump, as the deadline. */
  readonly arrivedMs: number;
  /** Its client gets an error then. */
  readonly deadline: number;
  /** It is being written. */
  isTried: boolean;
  readonly settle: (outcome: Outcome | Refusal) => void;
}

export function startWriting(options: SubmitOptions): Pick<EventStore, 'depth' | 'submit' | 'close'> {
  const waiting = new WaitingEvents<Waiting>();
  const running = new Set<Promise<void>>();
  /** When an event was decided last. */
  let decidedMs = Number.NEGATIVE_INFINITY;
  /** Nothing was decided while one event was tried. Until an event is decided, each is tried only once. */
  let hopeless = false;
  let closing = false;

  const onDecided = (): void => {
    decidedMs = performance.now();
    hopeless = false;
  };
  /** During an outage every attempt of every event fails. */
  const failures = new RareLine<string>((error, others) =>
    options.log.warn({ error, others }, 'an event could not be stored'),
  );

  const write = async ({ submission, deadline }: Waiting): Promise<Submitted> => {
    const begunMs = performance.now();
    const isHopeless = () => hopeless || closing;
    const onFailure = (error: unknown) => failures.add(String(error));
    try {
      return await submitOne(options, submission, { deadline, isHopeless, onDecided, onFailure });
    } catch (error) {
      if (!isNoAnswer(error)) options.log.error({ error: String(error) }, 'an event could not be decided');
      else if (decidedMs < begunMs) {
        hopeless = true;
        // What waits would wait for the same outage, so these events are not tried one by one.
        for (const item of waiting.takeAll()) item.settle(FAILED);
      }
      return { outcome: FAILED };
    }
  };

  /** What an event gets that was not decided in time. */
  const lateOutcome = ({ isTried, arrivedMs }: Pick<Waiting, 'isTried' | 'arrivedMs'>) =>
    !isTried && decidedMs > arrivedMs ? BUSY : FAILED;

  const start = (): void => {
    while (running.size < WRITES_AT_ONCE) {
      const item = waiting.take();
      if (item === undefined) return;
      if (performance.now() >= item.deadline) {
        item.settle(lateOutcome(item));
        waiting.giveBack(item);
        continue;
      }
      item.isTried = true;
      const run = write(item)
        .then(({ outcome, tidy }) => {
          item.settle(outcome);
          // The client does not wait for this, the next version of its key does.
          return tidy?.();
        })
        .finally(() => {
          running.delete(run);
          waiting.giveBack(item);
          start();
        });
      running.add(run);
    }
  };

  return {
    get depth() {
      return waiting.size;
    },
    submit: (submission, from) => {
      const { community, event, payload } = submission;
      const address = addressOf(event);
      const key = address && `${community}/${address}`;
      const [bytes, tags] = [payload.length, event.tags.length];
      const arrivedMs = performance.now();
      const deadline = arrivedMs + WAIT_MS_MAX;
      const arrived = { community, from, bytes, tags, key, submission, arrivedMs, deadline, isTried: false };
      const answer = new Promise<Outcome | Refusal>((settle) => {
        if (closing) return settle(refusal('error', 'the relay is shutting down'));
        if (!waiting.add(Object.assign(arrived, { settle }))) return settle(BUSY);
        start();
      });
      return inTime(answer, WAIT_MS_MAX, 'DynamoDB').catch(() => lateOutcome(arrived));
    },
    close: async () => {
      closing = true;
      while (running.size > 0) await Promise.all(running);
    },
  };
}
