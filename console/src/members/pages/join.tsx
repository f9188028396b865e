/** Redeems an invite: its code stands in the address, or is typed here. */
import { Alert, Badge, Button, Group, Paper, Select, Stack, Text, TextInput } from '@mantine/core';
import { IconTicket } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { useParams } from '@tanstack/react-router';
import { useState } from 'react';
import { ApiError, api, dataOf, useAction } from '../../shared/api.js';
import { Failure, Loading } from '../../shared/components/states.js';
import { dateTime } from '../../shared/format.js';
import { useT } from '../../shared/i18n.js';
import { notifyDone } from '../../shared/providers.js';
import { useDirectory } from '../data.js';
import { Head } from '../parts/head.js';
import { useGo } from '../parts/link.js';
import { useTopicName } from '../parts/names.js';
import { SignInFirst } from '../parts/sign-in.js';
import { TermsDialog } from '../parts/terms.js';
import { topicPath } from '../places.js';
import { useMember } from '../session.js';

export default function Join() {
  const t = useT();
  const { code } = useParams({ strict: false }) as { code?: string };
  return (
    <>
      <Head title={t('home:invite')} about={t('home:inviteAbout')} />
      {code === undefined ? <CodeForm /> : <Offer code={code} />}
    </>
  );
}

export function CodeForm() {
  const t = useT();
  const go = useGo();
  const [code, setCode] = useState('');
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (code.trim() !== '') go(`/join/${encodeURIComponent(code.trim())}`);
      }}
    >
      <Group align="flex-end" gap="sm">
        <TextInput
          flex={1}
          miw={200}
          label={t('home:inviteCode')}
          autoComplete="off"
          value={code}
          onChange={(event) => setCode(event.currentTarget.value)}
        />
        <Button type="submit" variant="default" disabled={code.trim() === ''}>
          {t('home:lookAtInvite')}
        </Button>
      </Group>
    </form>
  );
}

function Offer({ code }: { readonly code: string }) {
  const t = useT();
  const go = useGo();
  const member = useMember();
  const nameOf = useTopicName();
  const directory = useDirectory();
  const [chosen, setChosen] = useState<string | null>(null);
  const [needsTerms, setNeedsTerms] = useState(false);
  const offer = useQuery({
    queryKey: ['invite', code],
    queryFn: () => dataOf(api.GET('/v1/invites/{code}', { params: { path: { code } } })),
  });
  const redeem = useAction(
    (topic: string | null) =>
      dataOf(
        api.POST('/v1/invites/{code}/redeem', {
          params: { path: { code } },
          body: topic === null ? {} : { topic_id: topic },
        }),
      ),
    {
      changes: [['requests'], ['subscriptions'], ['invite'], ['directory']],
      onDone: ({ request }) => {
        notifyDone(t('home:joined'));
        go(topicPath(request.topic_id));
      },
    },
  );
  if (offer.isPending) return <Loading />;
  if (offer.isError) {
    const isUnknown = offer.error instanceof ApiError && offer.error.status === 404;
    return isUnknown ? (
      <Stack>
        <Alert color="red">{t('home:inviteUnknown')}</Alert>
        <CodeForm />
      </Stack>
    ) : (
      <Failure error={offer.error} retry={() => void offer.refetch()} />
    );
  }
  const { topic_id, name, status, expires_at } = offer.data;
  const send = () =>
    redeem.mutate(topic_id === null ? chosen : null, {
      onError: (error) => setNeedsTerms(error instanceof ApiError && error.code === 'CONSENT_REQUIRED'),
    });
  return (
    <Paper withBorder p="lg">
      <Stack align="flex-start">
        <Group>
          <IconTicket size={22} aria-hidden />
          <Text fw={600}>{topic_id === null ? t('home:inviteAny') : nameOf(topic_id, name)}</Text>
          <Badge color={status === 'valid' ? 'teal.9' : 'gray.7'}>{t(`home:inviteStatus.${status}`)}</Badge>
        </Group>
        {status === 'valid' && (
          <Text size="sm" c="dimmed">
            {t('home:inviteUntil', { time: dateTime(expires_at) })}
          </Text>
        )}
        {status === 'valid' && member === undefined && <SignInFirst />}
        {status === 'valid' && member !== undefined && topic_id === null && (
          <Select
            w="100%"
            maw={360}
            label={t('home:chooseTopic')}
            searchable
            clearable
            clearButtonProps={{ 'aria-label': t('home:globalTopic') }}
            placeholder={t('home:globalTopic')}
            value={chosen}
            onChange={setChosen}
            data={directory.items.map((topic) => ({
              value: topic.topic_id,
              label: nameOf(topic.topic_id, topic.name),
            }))}
          />
        )}
        {status === 'valid' && member !== undefined && (
          <Button onClick={send} loading={redeem.isPending}>
            {t('home:redeem')}
          </Button>
        )}
      </Stack>
      <TermsDialog opened={needsTerms} onClose={() => setNeedsTerms(false)} onAgreed={send} />
    </Paper>
  );
}
