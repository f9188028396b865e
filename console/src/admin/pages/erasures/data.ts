/** What the API says about erasures. */
import type { paths } from '../../../shared/schema.js';

type Json<P extends keyof paths> = paths[P] extends {
  get: { responses: { 200: { content: { 'application/json': infer T } } } };
}
  ? T
  : never;
export type Erasure = Json<'/v1/admin/erasures'>['items'][number];
export type ErasureDetails = Json<'/v1/admin/erasures/{erasure_id}'>;
export type Certificate = Json<'/v1/admin/erasure-certificates'>['items'][number];

export const ERASURES_KEY = ['erasures'] as const;
export const CERTIFICATES_KEY = ['erasure-certificates'] as const;

export const isEnded = (stage: Erasure['stage']): boolean => stage === 'completed' || stage === 'cancelled';

const COLORS: Partial<Record<Erasure['stage'], string>> = {
  completed: 'teal',
  cancelled: 'gray',
  held: 'orange',
  failed: 'red',
};
export const stageColor = (stage: Erasure['stage']): string => COLORS[stage] ?? 'harbour';
