/** The table of jobs, declared (I12). The scheduler keeps its own tables in the schema minato_worker. */
import { declareTable } from '../postgres/table.js';

export const jobRunsTable = declareTable('job_runs', {
  row: 'The latest run of a job.',
  erased: { never: 'It contains when a job of the node ran, and nothing about a person.' },
});
