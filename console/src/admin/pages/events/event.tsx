/** One event: what it is, what happened to it, who is served it, and what keeps it from coming back. */
import {
  Accordion,
  Alert,
  Anchor,
  Button,
  Code,
  Grid,
  Group,
  Paper,
  Stack,
  Text,
  Title,
} from '@mantine/core';
import { IconArrowLeft, IconEyeOff, IconUserSearch } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { Link, useParams } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { ApiError, api, dataOf } from '../../../shared/api.js';
import { Copy } from '../../../shared/components/copy.js';
import { EventText } from '../../../shared/components/event-text.js';
import { PageHead } from '../../../shared/components/page-head.js';
import { Empty, Failure, Loading } from '../../../shared/components/states.js';
import { dateTime } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import type { paths } from '../../../shared/schema.js';
import { useMay } from '../../session.js';
import { Someone } from '../../someone.js';
import { Life, SentAgain } from './life.js';
import type { FoundEvent } from './list.js';
import { StateBadge, Topics, useKindName } from './parts.js';
import { Readers } from './readers.js';
import './events.css';
import './texts.js';

export type LifeAnswer =
  paths['/v1/admin/events/{event_id}/life']['get']['responses'][200]['content']['application/json'];

/** Null if there is nothing with this id. */
async function orNull<T>(answer: Promise<T>): Promise<T | null> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  }
}

export default function EventPage() {
  const { eventId: id = '' } = useParams({ strict: false }) as { eventId?: string };
  const maySeeLife = useMay('moderator');
  const stored = useQuery({
    queryKey: ['event', id],
    queryFn: async () => {
      const page = await dataOf(api.GET('/v1/admin/events', { params: { query: { id } } }));
      return page.items[0] ?? null;
    },
  });
  const life = useQuery({
    queryKey: ['event-life', id],
    queryFn: () =>
      orNull(
        dataOf(api.GET('/v1/admin/events/{event_id}/life', { params: { path: { event_id: id } } })),
      ) as Promise<LifeAnswer | null>,
    enabled: maySeeLife,
  });
  const error = stored.error ?? life.error;
  if (error !== null)
    return (
      <Failure
        error={error}
        retry={() => {
          void stored.refetch();
          void life.refetch();
        }}
      />
    );
  if (stored.isPending || (maySeeLife && life.isPending)) return <Loading />;
  return <Whole id={id} found={stored.data ?? null} life={life.data ?? undefined} maySeeLife={maySeeLife} />;
}

interface WholeProps {
  readonly id: string;
  readonly found: FoundEvent | null;
  readonly life: LifeAnswer | undefined;
  readonly maySeeLife: boolean;
}

function Whole({ id, found, life, maySeeLife }: WholeProps) {
  const t = useT();
  const kindName = useKindName();
  if (found === null && life === undefined) return <Unknown id={id} />;
  const kind = found?.kind ?? life?.event?.kind;
  const author = found?.author ?? life?.author ?? undefined;
  return (
    <>
      <PageHead title={kind === undefined ? t('events:one') : kindName(kind)} about={<Id id={id} />}>
        <Back />
        {author !== undefined && (
          <>
            <Button component={Link} to="/events" search={{ author } as never} variant="default" size="xs">
              {t('events:moreOfAuthor')}
            </Button>
            <Button component={Link} to={`/trust/${author}`} variant="default" size="xs">
              {t('events:trustOf')}
            </Button>
          </>
        )}
      </PageHead>
      <Grid gap="lg">
        <Grid.Col span={{ base: 12, lg: 7 }}>
          <Stack gap="lg">
            <Card>
              <ContentOf found={found} isKnown={life !== undefined && life.status !== 'unknown'} />
              <Facts found={found} life={life} author={author} kind={kind} />
            </Card>
            {found !== null && (
              <Card title={t('events:readers')}>
                <Readers id={id} />
              </Card>
            )}
            {found?.event != null && <Raw event={found.event} />}
          </Stack>
        </Grid.Col>
        <Grid.Col span={{ base: 12, lg: 5 }}>
          <Stack gap="lg">
            <Card title={t('events:life')}>
              {life === undefined ? (
                <Text size="sm" c="dimmed">
                  {maySeeLife ? t('events:unknownText') : t('events:lifeForModerators')}
                </Text>
              ) : (
                <Life life={life} />
              )}
            </Card>
            {life !== undefined && (
              <Card title={t('events:again')}>
                <SentAgain again={life.sent_again} />
              </Card>
            )}
          </Stack>
        </Grid.Col>
      </Grid>
    </>
  );
}

function Card({ title, children }: { readonly title?: string; readonly children: ReactNode }) {
  return (
    <Paper withBorder p="lg" component="section" aria-label={title}>
      {title !== undefined && (
        <Title order={2} size="h5" mb="md">
          {title}
        </Title>
      )}
      {children}
    </Paper>
  );
}

function Id({ id }: { readonly id: string }) {
  const t = useT();
  return (
    <Group gap={4} wrap="nowrap">
      <Text span size="xs" className="mono" style={{ overflowWrap: 'anywhere' }}>
        {id}
      </Text>
      <Copy value={id} label={t('events:copyId')} />
    </Group>
  );
}

function Back() {
  const t = useT();
  return (
    <Button
      component={Link}
      to="/events"
      variant="subtle"
      size="xs"
      leftSection={<IconArrowLeft size={14} />}
    >
      {t('events:back')}
    </Button>
  );
}

function Unknown({ id }: { readonly id: string }) {
  const t = useT();
  return (
    <>
      <PageHead title={t('events:one')} about={<Id id={id} />}>
        <Back />
      </PageHead>
      <Empty
        title={t('events:unknown')}
        icon={<IconUserSearch size={26} />}
        action={
          <Anchor component={Link} to="/events" search={{ author: id } as never} size="sm">
            {t('events:moreOfAuthor')}
          </Anchor>
        }
      >
        {t('events:unknownText')}
      </Empty>
    </>
  );
}

function ContentOf({ found, isKnown }: { readonly found: FoundEvent | null; readonly isKnown: boolean }) {
  const t = useT();
  if (found?.event != null)
    return found.event.content.trim() === '' ? null : <EventText text={found.event.content} short={1_200} />;
  const missing = isKnown ? t('events:purgedContent') : t('events:neverContent');
  return (
    <Alert variant="light" color="gray" icon={<IconEyeOff size={18} />}>
      {found?.concealed == null ? missing : t(`events:concealed.${found.concealed}`)}
    </Alert>
  );
}

interface FactsProps {
  readonly found: FoundEvent | null;
  readonly life: LifeAnswer | undefined;
  readonly author: string | undefined;
  readonly kind: number | undefined;
}

function Facts({ found, life, author, kind }: FactsProps) {
  const t = useT();
  const kindName = useKindName();
  const created = found?.created_at ?? life?.event?.created_at;
  const expires = found?.expires_at ?? life?.event?.expires_at;
  const state = found?.state ?? life?.status;
  return (
    <dl className="facts">
      {state !== undefined && (
        <Fact name={t('events:fact.state')}>
          <StateBadge state={state} />
        </Fact>
      )}
      {author !== undefined && (
        <Fact name={t('events:fact.author')}>
          <Someone pubkey={author} to={`/members/${author}`} />
        </Fact>
      )}
      {kind !== undefined && (
        <Fact name={t('events:fact.kind')}>
          {kindName(kind)} ({kind})
        </Fact>
      )}
      {created !== undefined && <Fact name={t('events:fact.created')}>{dateTime(created * 1_000)}</Fact>}
      {found !== null && <Fact name={t('events:fact.received')}>{dateTime(found.received_at)}</Fact>}
      {expires != null && <Fact name={t('events:fact.expires')}>{dateTime(expires * 1_000)}</Fact>}
      {found !== null && found.concealed === null && (
        <Fact name={t('events:fact.topics')}>
          {found.topics.length === 0 ? t('events:noTopic') : <Topics topics={found.topics} to="/topics" />}
        </Fact>
      )}
      {life !== undefined && (
        <Fact name={t('events:fact.indexed')}>{t(life.indexed ? 'events:yes' : 'events:no')}</Fact>
      )}
    </dl>
  );
}

function Fact({ name, children }: { readonly name: string; readonly children: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Raw({ event }: { readonly event: NonNullable<FoundEvent['event']> }) {
  const t = useT();
  return (
    <Accordion variant="contained" order={2}>
      <Accordion.Item value="raw">
        <Accordion.Control>{t('events:raw')}</Accordion.Control>
        <Accordion.Panel>
          <Group justify="flex-end" mb={4}>
            <Copy value={JSON.stringify(event)} label={t('events:copyJson')} />
          </Group>
          <Code block className="text">
            {JSON.stringify(event, null, 2)}
          </Code>
        </Accordion.Panel>
      </Accordion.Item>
    </Accordion>
  );
}
