/** Requests to DynamoDB Streams, each with a deadline (I15). The SDK is loaded at first use. */
import { ATTEMPTS_MAX, REQUEST_BOUNDS, REQUEST_MS_MAX } from '../../../dynamodb/sdk.js';
import { inTime } from '../../../limits/in-time.js';
import type { DynamodbPlace } from '../../../node/config.js';
import { asNoAnswer, DynamodbFailure } from '../client.js';
import type { StreamRecord } from './rules-records.js';

/** The limit of GetRecords. */
const RECORDS_MAX = 1_000;
/** I14: a stream of 24 hours has a few shards per partition of its table. */
const SHARD_PAGES_MAX = 1_000;

/** An optional dependency, so it is named by a variable: the program compiles without it. */
const PACKAGE: string = '@aws-sdk/client-dynamodb-streams';
const SDK_MISSING =
  'The AWS SDK for DynamoDB Streams, an optional dependency, is not installed. ' +
  `Run: npm install ${PACKAGE}`;

/** What we use of the package. */
interface StreamsPackage {
  readonly DynamoDBStreamsClient: new (
    config: object,
  ) => {
    send(command: object): Promise<unknown>;
    destroy(): void;
  };
  readonly DescribeStreamCommand: new (input: object) => object;
  readonly GetShardIteratorCommand: new (input: object) => object;
  readonly GetRecordsCommand: new (input: object) => object;
}

export interface Shard {
  readonly id: string;
  readonly parent: string | undefined;
}

export interface RecordsPage {
  readonly records: readonly StreamRecord[];
  /** Undefined when the shard is closed and was read to its end. */
  readonly next: string | undefined;
}

/** The records after the position are no longer kept. */
export class Trimmed extends Error {}
/** An iterator is valid for some minutes. */
export class IteratorExpired extends Error {}

export class Streams {
  private opened:
    | Promise<{
        readonly sdk: StreamsPackage;
        readonly client: InstanceType<StreamsPackage['DynamoDBStreamsClient']>;
      }>
    | undefined;

  constructor(private readonly place: Pick<DynamodbPlace, 'endpoint' | 'region'>) {}

  /** Fails when the SDK is not installed. */
  async load(): Promise<void> {
    this.opened ??= this.open();
    await this.opened;
  }

  async shards(stream: string): Promise<Shard[]> {
    const shards: Shard[] = [];
    let from: string | undefined;
    for (let pages = 0; pages < SHARD_PAGES_MAX; pages += 1) {
      const input = { StreamArn: stream, ExclusiveStartShardId: from };
      const answer = (await this.send((sdk) => new sdk.DescribeStreamCommand(input))) as {
        StreamDescription?: {
          Shards?: { ShardId?: string; ParentShardId?: string }[];
          LastEvaluatedShardId?: string;
        };
      };
      for (const { ShardId, ParentShardId } of answer.StreamDescription?.Shards ?? [])
        shards.push({ id: ShardId!, parent: ParentShardId });
      from = answer.StreamDescription?.LastEvaluatedShardId;
      if (from === undefined) return shards;
    }
    throw new DynamodbFailure(`the stream ${stream} has too many shards`);
  }

  /** Where to read on after a record; without one, from the oldest that is kept. */
  async iterator(stream: string, shard: string, after: string | undefined): Promise<string | undefined> {
    const input = {
      StreamArn: stream,
      ShardId: shard,
      ...(after === undefined
        ? { ShardIteratorType: 'TRIM_HORIZON' }
        : { ShardIteratorType: 'AFTER_SEQUENCE_NUMBER', SequenceNumber: after }),
    };
    const answer = await this.send((sdk) => new sdk.GetShardIteratorCommand(input));
    return (answer as { ShardIterator?: string }).ShardIterator;
  }

  async records(iterator: string): Promise<RecordsPage> {
    const input = { ShardIterator: iterator, Limit: RECORDS_MAX };
    const answer = (await this.send((sdk) => new sdk.GetRecordsCommand(input))) as {
      Records?: StreamRecord[];
      NextShardIterator?: string;
    };
    return { records: answer.Records ?? [], next: answer.NextShardIterator };
  }

  async close(): Promise<void> {
    (await this.opened?.catch(() => undefined))?.client.destroy();
  }

  private async send(command: (sdk: StreamsPackage) => object): Promise<unknown> {
    this.opened ??= this.open();
    const { sdk, client } = await this.opened;
    const where = `DynamoDB Streams at ${new URL(this.place.endpoint).host}`;
    try {
      return await inTime(client.send(command(sdk)), REQUEST_MS_MAX, where);
    } catch (error) {
      const { name, message } = error as Error;
      if (name === 'TrimmedDataAccessException') throw new Trimmed(message);
      if (name === 'ExpiredIteratorException') throw new IteratorExpired(message);
      throw asNoAnswer(error);
    }
  }

  private async open() {
    const sdk = (await import(PACKAGE).catch((error: unknown) => {
      throw new DynamodbFailure(SDK_MISSING, 'SdkMissing', error);
    })) as StreamsPackage;
    const client = new sdk.DynamoDBStreamsClient({
      endpoint: streamsEndpoint(this.place.endpoint),
      region: this.place.region,
      maxAttempts: ATTEMPTS_MAX,
      requestHandler: REQUEST_BOUNDS,
    });
    return { sdk, client };
  }
}

/** On AWS, streams have an endpoint of their own beside that of the tables. */
export function streamsEndpoint(endpoint: string): string {
  return endpoint.replace(/^(https?:\/\/)dynamodb\./, '$1streams.dynamodb.');
}
