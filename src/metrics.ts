/** Prometheus metrics of one process. No label names a community, an author or an address (I13). */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';

const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10];

export type Metrics = ReturnType<typeof createMetrics>;

/** A community or a topic that is in a step against short space; which one is not told (I13). */
export interface ScopeStep {
  readonly scope: 'whole' | 'topic';
  readonly step: number;
}

export function createMetrics() {
  const registers = [new Registry()];
  const registry = registers[0]!;
  collectDefaultMetrics({ register: registry });
  let highestStep = (): number => 0;
  let stepsInForce = (): Iterable<ScopeStep> => [];
  const consumerGauge = (name: string, help: string) =>
    new Gauge({ name: `minato_consumer_${name}`, help, labelNames: ['consumer'], registers });
  return {
    registry,
    events: new Counter({
      name: 'minato_events_total',
      help: 'Events by what became of them',
      labelNames: ['outcome'],
      registers,
    }),
    laneDepth: new Gauge({ name: 'minato_lane_depth', help: 'Events waiting for the lane', registers }),
    laneBatch: new Histogram({
      name: 'minato_lane_batch_events',
      help: 'Events in one commit',
      buckets: [1, 2, 5, 10, 25, 50, 100, 250, 500],
      registers,
    }),
    laneCommit: new Histogram({
      name: 'minato_lane_commit_seconds',
      help: 'From the start of a batch to its durable commit',
      buckets: SECONDS,
      registers,
    }),
    laneRetries: new Counter({
      name: 'minato_lane_retries_total',
      help: 'Batches that were tried again',
      registers,
    }),
    verify: new Histogram({
      name: 'minato_verify_seconds',
      help: 'Waiting for and checking id and signature',
      buckets: SECONDS,
      registers,
    }),
    request: new Histogram({
      name: 'minato_req_seconds',
      help: 'From REQ to EOSE',
      buckets: SECONDS,
      registers,
    }),
    answers: new Counter({
      name: 'minato_answers_total',
      help: 'Answers to filters by where their rows came from: memory or database',
      labelNames: ['from'],
      registers,
    }),
    rowsServed: new Counter({
      name: 'minato_rows_served_total',
      help: 'Stored events sent to clients',
      registers,
    }),
    delivered: new Counter({
      name: 'minato_deliveries_total',
      help: 'Live events sent to clients',
      registers,
    }),
    subscriptions: new Gauge({ name: 'minato_subscriptions', help: 'Open subscriptions', registers }),
    sockets: new Gauge({ name: 'minato_sockets', help: 'Open websockets', registers }),
    slowReaders: new Counter({
      name: 'minato_slow_readers_total',
      help: 'Connections closed because they did not read',
      registers,
    }),
    bytesIn: new Counter({
      name: 'minato_received_bytes_total',
      help: 'Bytes of frames received',
      registers,
    }),
    bytesOut: new Counter({ name: 'minato_sent_bytes_total', help: 'Bytes of frames sent', registers }),
    jobRuns: new Counter({
      name: 'minato_job_runs_total',
      help: 'Runs of jobs by what became of them: ok, failed, busy (another instance was at it)',
      labelNames: ['job', 'result'],
      registers,
    }),
    capacityStep: new Gauge({
      name: 'minato_capacity_step',
      help: 'The highest step against short space of any community or topic: 0 fine, 1 no backfill, 2 only topics of higher priority, 3 purging',
      registers,
      collect() {
        this.set(highestStep());
      },
    }),
    capacityScopes: new Gauge({
      name: 'minato_capacity_scopes',
      help: 'How many communities, and topics with limits of their own, are in a step against short space',
      labelNames: ['scope', 'step'],
      registers,
      collect() {
        this.reset();
        for (const scope of ['whole', 'topic'] as const)
          for (const step of ['1', '2', '3']) this.set({ scope, step }, 0);
        for (const { scope, step } of stepsInForce()) this.inc({ scope, step: String(step) });
      },
    }),
    /** Who knows the steps says how to read them; asked at each scrape. */
    watchCapacity: (read: () => number, readScopes: () => Iterable<ScopeStep>): void => {
      highestStep = read;
      stepsInForce = readScopes;
    },
    hidden: new Counter({
      name: 'minato_hidden_events_total',
      help: 'Events that jobs took out of the view, by reason; capacity: purged because space was short',
      labelNames: ['reason'],
      registers,
    }),
    consumerRows: new Counter({
      name: 'minato_consumer_rows_total',
      help: 'Rows of the outbox that a consumer has taken in this process',
      labelNames: ['consumer'],
      registers,
    }),
    consumerLagRows: consumerGauge('lag_rows', 'Numbers of the outbox that a consumer has not passed yet'),
    consumerLagSeconds: consumerGauge('lag_seconds', 'How long the oldest row it has not read has waited'),
    consumerLetters: consumerGauge(
      'dead_letters',
      'Changes that it failed at and that wait for the operator',
    ),
    consumerLagging: consumerGauge('lagging', '1 when it is paused, failing, or further behind than allowed'),
    consumerRebuilding: consumerGauge('rebuilding', '1 while it is asked for anew or being built'),
    erasures: new Gauge({
      name: 'minato_erasures',
      help: 'Erasures by stage; held and failed wait for the operator',
      labelNames: ['stage'],
      registers,
    }),
    followers: new Gauge({
      name: 'minato_followers',
      help: 'Services outside that follow the outbox: registered; awaited by an erasure; overrun: an erasure went on without it',
      labelNames: ['state'],
      registers,
    }),
    trustCorrections: new Counter({
      name: 'minato_trust_corrections_total',
      help: 'Scores of trust that the daily pass over all of them found to be wrong, and had computed again',
      registers,
    }),
    erasureAlarms: new Gauge({
      name: 'minato_erasure_alarms',
      help: 'Stores in which something of one who was erased was found again, by the last daily look',
      registers,
    }),
    outboxHead: new Gauge({
      name: 'minato_outbox_head',
      help: 'Last outbox number this process has delivered',
      registers,
    }),
  };
}
