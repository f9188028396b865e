/** What the API takes and answers about rules. */
import type { paths } from '../../../shared/schema.js';

type Rules = paths['/v1/admin/moderation/rules'];
export type Rule = Rules['get']['responses'][200]['content']['application/json']['items'][number];
export type NewRule = NonNullable<Rules['post']['requestBody']>['content']['application/json'];
export type RuleConditions = NewRule['conditions'];
type Try = paths['/v1/admin/moderation/rules/try'];
export type Trial = Try['post']['responses'][200]['content']['application/json'];

export const ACTIONS = ['hold', 'hide', 'refuse', 'label'] as const satisfies readonly Rule['action'][];
