/** What the member has of a topic, and the next step: ask, follow the request, or resume. */
import { Badge, Button, Group } from '@mantine/core';
import { IconClock, IconPlus } from '@tabler/icons-react';
import { useState } from 'react';
import { ApiError } from '../../shared/api.js';
import { useT } from '../../shared/i18n.js';
import { notifyDone } from '../../shared/providers.js';
import { useAsk, useMine, useStep } from '../data.js';
import { useMember } from '../session.js';
import { TermsDialog } from './terms.js';

export function TopicState({ topic }: { readonly topic: string }) {
  const t = useT();
  const member = useMember();
  const { open, all } = useMine();
  const [needsTerms, setNeedsTerms] = useState(false);
  const ask = useAsk(() => notifyDone(t('home:asked')));
  const step = useStep();
  if (member === undefined) return null;
  const subscription = open.find(({ topic_id }) => topic_id === topic);
  if (subscription?.status === 'active') return <Badge color="teal.9">{t('home:subscribed')}</Badge>;
  if (subscription?.status === 'paused')
    return (
      <Button size="xs" variant="light" onClick={() => step.mutate({ topic, step: 'resume' })}>
        {t('home:resume')}
      </Button>
    );
  if (all.some(({ topic_id, status }) => topic_id === topic && status === 'pending'))
    return (
      <Badge variant="default" leftSection={<IconClock size={12} />}>
        {t('home:waiting')}
      </Badge>
    );
  const send = () =>
    ask.mutate(
      { topic_id: topic },
      { onError: (error) => setNeedsTerms(error instanceof ApiError && error.code === 'CONSENT_REQUIRED') },
    );
  return (
    <Group gap={4}>
      <Button
        size="xs"
        variant="light"
        leftSection={<IconPlus size={14} />}
        loading={ask.isPending}
        onClick={send}
      >
        {t('home:ask')}
      </Button>
      <TermsDialog opened={needsTerms} onClose={() => setNeedsTerms(false)} onAgreed={send} />
    </Group>
  );
}
