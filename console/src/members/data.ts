/** What the pages read and change over the HTTP API, by name. */
import { useQuery } from '@tanstack/react-query';
import { api, dataOf, useAction, useList } from '../shared/api.js';
import { currentLanguage } from '../shared/i18n.js';
import type { paths } from '../shared/schema.js';
import { useMember } from './session.js';

type Answer<P extends keyof paths, M extends keyof paths[P]> = paths[P][M] extends {
  responses: { 200: { content: { 'application/json': infer T } } };
}
  ? T
  : never;

export type Topic = Answer<'/v1/topics', 'get'>['items'][number];
export type Subscription = Answer<'/v1/topic-subscriptions', 'get'>['items'][number];
export type TopicRequest = Answer<'/v1/topic-subscription-requests', 'get'>['items'][number];
export type Policy = Answer<'/v1/policies/current', 'get'>['items'][number];
export type Decision = Answer<'/v1/moderation', 'get'>['items'][number];
export type Export = Answer<'/v1/personal-data-export-requests', 'get'>['items'][number];
export type Deletion = Answer<'/v1/personal-data-deletion-requests', 'get'>['items'][number];

const FOLLOWED_MS = 2_000;
const DIRECTORY_MS = 30_000;

export function useDirectory() {
  return useList<Topic>(
    ['directory'],
    (cursor) => dataOf(api.GET('/v1/topics', { params: { query: { limit: 100, cursor } } })),
    { refetchInterval: DIRECTORY_MS },
  );
}

export function useTopic(topic: string) {
  const reader = useMember()?.pubkey;
  return useQuery({
    queryKey: ['topic', topic, reader],
    queryFn: () => dataOf(api.GET('/v1/topics/{topic_id}', { params: { path: { topic_id: topic } } })),
  });
}

/** Subscriptions and pending requests of the member. Read often while a request waits for its review. */
export function useMine() {
  const reader = useMember()?.pubkey;
  const enabled = reader !== undefined;
  const requests = useQuery({
    queryKey: ['requests', reader],
    enabled,
    queryFn: () => dataOf(api.GET('/v1/topic-subscription-requests', { params: { query: { limit: 50 } } })),
    refetchInterval: ({ state }) =>
      state.data?.items.some(({ status }) => status === 'pending') ? FOLLOWED_MS : false,
  });
  const pending = requests.data?.items.filter(({ status }) => status === 'pending').length ?? 0;
  const subscriptions = useQuery({
    // Read again when a request was decided.
    queryKey: ['subscriptions', reader, pending],
    enabled,
    queryFn: () => dataOf(api.GET('/v1/topic-subscriptions', { params: { query: { limit: 200 } } })),
    placeholderData: (before) => before,
    staleTime: 0,
  });
  const open = subscriptions.data?.items.filter(({ status }) => status !== 'ended') ?? [];
  return { requests, subscriptions, open, all: requests.data?.items ?? [] };
}

const MINE = [['requests'], ['subscriptions'], ['usage'], ['directory'], ['topic']] as const;

export type Wanted = { readonly topic_id: string } | { readonly name: string };

export const useAsk = (onDone?: (wanted: Wanted) => void) =>
  useAction(
    (wanted: Wanted) =>
      dataOf(api.POST('/v1/topic-subscription-requests', { body: { ...wanted, requested_services: [] } })),
    { changes: MINE, onDone: (_answer, wanted) => onDone?.(wanted) },
  );

export const useCancelRequest = () =>
  useAction(
    (id: string) =>
      dataOf(
        api.POST('/v1/topic-subscription-requests/{request_id}/cancel', {
          params: { path: { request_id: id } },
        }),
      ),
    { changes: MINE },
  );

export type Step = 'pause' | 'resume' | 'end';

export const useStep = (onDone?: () => void) =>
  useAction(
    ({ topic, step }: { topic: string; step: Step }) => {
      const params = { path: { topic_id: topic } };
      if (step === 'pause') return dataOf(api.POST('/v1/topic-subscriptions/{topic_id}/pause', { params }));
      if (step === 'resume') return dataOf(api.POST('/v1/topic-subscriptions/{topic_id}/resume', { params }));
      return dataOf(api.DELETE('/v1/topic-subscriptions/{topic_id}', { params }));
    },
    { changes: MINE, onDone: () => onDone?.() },
  );

export function useUsage() {
  const reader = useMember()?.pubkey;
  return useQuery({
    queryKey: ['usage', reader],
    enabled: reader !== undefined,
    queryFn: () => dataOf(api.GET('/v1/usage')),
  });
}

export function usePolicies() {
  const locale = currentLanguage();
  return useQuery({
    queryKey: ['policies', locale],
    queryFn: () => dataOf(api.GET('/v1/policies/current', { params: { query: { locale } } })),
    staleTime: 60_000,
  });
}

export function useConsents() {
  const reader = useMember()?.pubkey;
  return useQuery({
    queryKey: ['consents', reader],
    enabled: reader !== undefined,
    queryFn: () => dataOf(api.GET('/v1/consents/status')),
  });
}

export const useAgree = (onDone?: () => void) =>
  useAction(
    async (policies: readonly Policy[]) => {
      for (const { type, version, locale, content_hash } of policies)
        await dataOf(api.POST('/v1/consents', { body: { type, version, locale, content_hash } }));
    },
    { changes: [['consents'], ['policies']], onDone: () => onDone?.() },
  );

export const useWithdraw = () =>
  useAction(
    (id: string) =>
      dataOf(api.POST('/v1/consents/{consent_id}/withdraw', { params: { path: { consent_id: id } } })),
    { changes: [['consents']] },
  );

export const REASONS = [
  'spam',
  'impersonation',
  'profanity',
  'nudity',
  'malware',
  'illegal',
  'other',
] as const;
export type Reason = (typeof REASONS)[number];

export const useReport = (onDone: () => void) =>
  useAction(
    (report: { event_id: string; pubkey: string; reason: Reason; comment: string }) =>
      dataOf(api.POST('/v1/reports', { body: report })),
    { changes: [['usage']], onDone },
  );

export function useDecisions() {
  const reader = useMember()?.pubkey;
  return useList<Decision>(
    ['decisions', reader],
    (cursor) => dataOf(api.GET('/v1/moderation', { params: { query: { limit: 50, cursor } } })),
    { enabled: reader !== undefined, of: reader ?? '' },
  );
}

export const useAppeal = (onDone: () => void) =>
  useAction(
    (appeal: { event_id?: string; text: string }) =>
      dataOf(api.POST('/v1/moderation/appeals', { body: appeal })),
    { changes: [['decisions']], onDone },
  );
