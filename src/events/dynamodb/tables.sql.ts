/** Declares what the store in DynamoDB keeps in PostgreSQL (I12). */
import { declareTable } from '../../postgres/table.js';

export const streamShardsTable = declareTable('stream_shards', {
  row: 'A shard of the stream of events in DynamoDB: how far it was read, and by which worker.',
  erased: { never: 'It holds positions of a stream, and no personal data.' },
});
