/**
 * Prometheus metrics of one process. No label names a community, an author or an address (I13). Of several
 * instances values are added, unless a metric has another `aggregator`.
 */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import { bucketOf, TIME_BUCKETS } from '../overview/rules.js';

const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10];

export type Metrics = ReturnType<typeof createMetrics>;

/** A community or a topic that is in a capacity step. It is not named (I13). */
export interface ScopeStep {
  readonly scope: 'whole' | 'topic';
  readonly step: number;
}

export interface DiskState {
  readonly level: number;
  readonly freeBytes: number | undefined;
}

/**
 * How long clients waited for OK, and the longest queue of the lane since it was last read. Plain numbers:
 * they change with every event.
 */
export class Figures {
  private readonly times = new Float64Array(TIME_BUCKETS);
  private deepest = 0;

  noteOk(ms: number): void {
    this.times[bucketOf(ms)]! += 1;
  }
  noteLane(events: number): void {
    if (events > this.deepest) this.deepest = events;
  }
  /** Events by their time to OK, since the start. */
  okTimes(): number[] {
    return [...this.times];
  }
  /** The longest queue since the last call. */
  takeDeepest(now: number): number {
    const deepest = Math.max(this.deepest, now);
    this.deepest = now;
    return deepest;
  }
}

export function createMetrics() {
  const registers = [new Registry()];
  const registry = registers[0]!;
  let isScraped = false;
  let highestStep = (): number => 0;
  let stepsInForce = (): Iterable<ScopeStep> => [];
  let disk = (): DiskState => ({ level: 0, freeBytes: undefined });
  const consumerGauge = (name: string, help: string) =>
    new Gauge({ name: `minato_consumer_${name}`, help, labelNames: ['consumer'], registers });
  const collectAll = (): void => {
    if (!isScraped) collectDefaultMetrics({ register: registry });
    isScraped = true;
  };
  return {
    registry,
    figures: new Figures(),
    /**
     * All metrics as text. Metrics of the process itself are collected only after the first scrape: the timer
     * that watches the event loop fires a hundred times a second, more than all else in an idle node.
     */
    scrape: (): Promise<string> => {
      collectAll();
      return registry.metrics();
    },
    /** The same as values, to be combined with those of other instances. */
    report: (): Promise<readonly object[]> => {
      collectAll();
      return registry.getMetricsAsJSON();
    },
    events: new Counter({
      name: 'minato_events_total',
      help: 'Events by outcome',
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
    windowEvents: new Gauge({
      name: 'minato_window_events',
      help: 'Events in the memory of this relay, all communities together',
      registers,
    }),
    windowBytes: new Gauge({
      name: 'minato_window_bytes',
      help: 'Bytes of the events in memory, with their indexes',
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
    unnamedForwards: new Counter({
      name: 'minato_unnamed_forwards_total',
      help: 'Requests that a program on this machine forwarded without naming their clients',
      registers,
    }),
    slowReaders: new Counter({
      name: 'minato_slow_readers_total',
      help: 'Connections closed because they did not read',
      registers,
    }),
    rejected: new Counter({
      name: 'minato_rejected_connections_total',
      help: 'Connections closed because of their input: malformed, incomplete, or too much',
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
      help: 'Runs of jobs by result: ok, failed, busy (another instance was running it)',
      labelNames: ['job', 'result'],
      registers,
    }),
    capacityStep: new Gauge({
      name: 'minato_capacity_step',
      aggregator: 'max',
      help:
        'The highest capacity step of any community or topic: 0 fine, 1 no backfill, ' +
        '2 only topics of higher priority, 3 purging',
      registers,
      collect() {
        this.set(highestStep());
      },
    }),
    capacityScopes: new Gauge({
      name: 'minato_capacity_scopes',
      aggregator: 'max',
      help: 'How many communities, and topics with limits of their own, are in a capacity step',
      labelNames: ['scope', 'step'],
      registers,
      collect() {
        this.reset();
        for (const scope of ['whole', 'topic'] as const)
          for (const step of ['1', '2', '3']) this.set({ scope, step }, 0);
        for (const { scope, step } of stepsInForce()) this.inc({ scope, step: String(step) });
      },
    }),
    /** Sets the functions that each scrape reads the capacity steps with. */
    watchCapacity: (read: () => number, readScopes: () => Iterable<ScopeStep>): void => {
      highestStep = read;
      stepsInForce = readScopes;
    },
    diskLevel: new Gauge({
      name: 'minato_disk_level',
      aggregator: 'max',
      help:
        'How full the disk of the embedded PostgreSQL is: ' +
        '0 fine, 1 no backfill, 2 no posts, 3 nothing is stored',
      registers,
      collect() {
        this.set(disk().level);
      },
    }),
    diskFree: new Gauge({
      name: 'minato_disk_free_bytes',
      aggregator: 'min',
      help: 'Free space of that disk; NaN where it cannot be known (DATABASE_URL)',
      registers,
      collect() {
        this.set(disk().freeBytes ?? Number.NaN);
      },
    }),
    watchDisk: (read: () => DiskState): void => {
      disk = read;
    },
    hidden: new Counter({
      name: 'minato_hidden_events_total',
      help: 'Events that jobs have hidden, by reason; capacity: purged because space was short',
      labelNames: ['reason'],
      registers,
    }),
    dynamodbUnits: new Counter({
      name: 'minato_dynamodb_units_total',
      help: 'Capacity units that DynamoDB has charged for events',
      labelNames: ['operation'],
      registers,
    }),
    dynamodbThrottled: new Counter({
      name: 'minato_dynamodb_throttled_total',
      help: 'Requests for events that DynamoDB has throttled',
      labelNames: ['operation'],
      registers,
    }),
    dynamodbRemovalsLeft: new Counter({
      name: 'minato_dynamodb_removals_left_total',
      help: 'Deleted events whose removal has failed and is left to a job',
      registers,
    }),
    dynamodbStreamLag: new Gauge({
      name: 'minato_dynamodb_stream_lag_seconds',
      help: 'How old the changes of the stream are that were last appended to the outbox here',
      registers,
    }),
    consumerRows: new Counter({
      name: 'minato_consumer_rows_total',
      help: 'Outbox rows that a consumer has applied in this process',
      labelNames: ['consumer'],
      registers,
    }),
    consumerLagRows: consumerGauge('lag_rows', 'Offsets between a consumer and the head of the outbox'),
    consumerLagSeconds: consumerGauge('lag_seconds', 'Age of the oldest row that it has not read'),
    consumerLetters: consumerGauge(
      'dead_letters',
      'Changes that it failed to apply and that wait for the operator',
    ),
    consumerLagging: consumerGauge('lagging', '1 when it is paused, failing, or further behind than allowed'),
    consumerRebuilding: consumerGauge('rebuilding', '1 while a rebuild is requested or running'),
    erasures: new Gauge({
      name: 'minato_erasures',
      help: 'Erasures by stage; held and failed wait for the operator',
      labelNames: ['stage'],
      registers,
    }),
    followers: new Gauge({
      name: 'minato_followers',
      help:
        'External services that follow the outbox: registered; awaited by an erasure; ' +
        'overrun: an erasure continued without it',
      labelNames: ['state'],
      registers,
    }),
    trustCorrections: new Counter({
      name: 'minato_trust_corrections_total',
      help: 'Trust scores that the daily check found wrong and had computed again',
      registers,
    }),
    erasureAlarms: new Gauge({
      name: 'minato_erasure_alarms',
      help: 'Stores in which the last daily check found data of an erased member',
      registers,
    }),
    gossipSent: new Counter({
      name: 'minato_gossip_sent_messages_total',
      help: 'Gossip messages that this process has sent; a large event has several',
      registers,
    }),
    gossipReceived: new Counter({
      name: 'minato_gossip_received_messages_total',
      help: 'Gossip messages that this process has received, by outcome; part: one of several of an event',
      labelNames: ['outcome'],
      registers,
    }),
    gossipLost: new Counter({
      name: 'minato_gossip_losses_total',
      help:
        'Why gossip messages were lost: lagged and broken (times), discarded over the rate of a peer ' +
        '(messages); the topics are then filled from peers',
      labelNames: ['why'],
      registers,
    }),
    gossipPeersDropped: new Counter({
      name: 'minato_gossip_dropped_peers_total',
      help: 'Peers that were ignored for a while, because they sent too much that is malformed or forged',
      registers,
    }),
    gossipCatchUps: new Counter({
      name: 'minato_gossip_catch_ups_total',
      help: 'Topics that were filled from peers, by outcome',
      labelNames: ['outcome'],
      registers,
    }),
    gossipPeers: new Gauge({
      name: 'minato_gossip_neighbours',
      help: 'Machines of other nodes to which this process is connected',
      registers,
    }),
    gossipTopics: new Gauge({
      name: 'minato_gossip_topics',
      help: 'Gossip topics that this process has joined',
      registers,
    }),
    replicaReads: new Counter({
      name: 'minato_replica_reads_total',
      help:
        'Reads of stored events by where they ran: served (by the replica); by the primary because the ' +
        'replica was behind, failed, or was resting after that',
      labelNames: ['result'],
      registers,
    }),
    replicaUsed: new Gauge({
      name: 'minato_replica_used',
      aggregator: 'min',
      help: '1 while stored events are read from DATABASE_READ_URL, 0 while it fails or without it',
      registers,
    }),
    replicaBehind: new Gauge({
      name: 'minato_replica_behind_offsets',
      aggregator: 'max',
      help: 'Offsets of the outbox that the replica lacked when it was last asked',
      registers,
    }),
    archiveFailing: new Gauge({
      name: 'minato_wal_archive_failing',
      help: '1 when MINATO_BACKUP_DIR is set and the log is not archived there',
      registers,
    }),
    backupAge: new Gauge({
      name: 'minato_backup_age_seconds',
      help: 'Age of the newest backup in MINATO_BACKUP_DIR; +Inf without one, 0 without the variable',
      registers,
    }),
    outboxHead: new Gauge({
      name: 'minato_outbox_head',
      aggregator: 'min',
      help: 'Last outbox offset that this process has delivered',
      registers,
    }),
  };
}
