/** What the API takes and answers about batches. */
import type { paths } from '../../../shared/schema.js';

type Batches = paths['/v1/admin/moderation/batches'];
export type Batch = Batches['get']['responses'][200]['content']['application/json']['items'][number];
export type NewBatch = NonNullable<Batches['post']['requestBody']>['content']['application/json'];
type Previews = paths['/v1/admin/moderation/batches/preview'];
export type Preview = Previews['post']['responses'][200]['content']['application/json'];

/** Whether a worker still has something to do for it. */
export const isMoving = ({ status, outcomes }: Batch): boolean =>
  status === 'running' ||
  status === 'undoing' ||
  Object.keys(outcomes).some((outcome) => outcome.endsWith(': waiting'));
