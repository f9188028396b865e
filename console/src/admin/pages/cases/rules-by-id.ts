/** The names of rules, which cases and labels refer to by id. */
import { useQuery } from '@tanstack/react-query';
import { api, dataOf } from '../../../shared/api.js';

export const RULES_KEY = ['rules'];

export function useRules() {
  return useQuery({
    queryKey: RULES_KEY,
    queryFn: async () => (await dataOf(api.GET('/v1/admin/moderation/rules'))).items,
  });
}

/** The name of a rule; undefined while the rules are read, or when it was deleted. */
export function useRuleName(): (ruleId: string) => string | undefined {
  const names = new Map(useRules().data?.map(({ rule_id: id, name }) => [id, name]));
  return (ruleId) => names.get(ruleId);
}
