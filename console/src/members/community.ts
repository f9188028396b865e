/** What this community says about itself (NIP-11). */
import { useQuery } from '@tanstack/react-query';
import { errorOf } from '../shared/api.js';
import { membersBase } from '../shared/place.js';

export interface About {
  readonly name: string;
  readonly description: string;
  readonly contact?: string;
  readonly terms_of_service?: string;
  readonly privacy_policy?: string;
  readonly topics: { readonly mode: 'required' | 'default' | 'open' };
  readonly limitation: { readonly auth_required: boolean; readonly max_event_bytes: number };
  readonly version: string;
}

export function useAbout() {
  return useQuery({
    queryKey: ['about'],
    queryFn: async () => {
      const response = await fetch(membersBase, { headers: { accept: 'application/nostr+json' } });
      if (!response.ok) throw await errorOf(response);
      return (await response.json()) as About;
    },
    staleTime: 60_000,
  });
}
