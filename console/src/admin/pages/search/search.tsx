/** Search as members have it: the public route, without the rights of an operator. */
import { Alert, Anchor, Button, Center, Group, Paper, Stack, Text, TextInput } from '@mantine/core';
import { useDebouncedCallback } from '@mantine/hooks';
import { IconInfoCircle, IconListSearch, IconLock, IconSearch } from '@tabler/icons-react';
import { useInfiniteQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useEffect, useState } from 'react';
import { ApiError, api, dataOf } from '../../../shared/api.js';
import { EventText } from '../../../shared/components/event-text.js';
import { PageHead } from '../../../shared/components/page-head.js';
import { Empty, Failure, Loading } from '../../../shared/components/states.js';
import { When } from '../../../shared/components/when.js';
import { text, useFilters } from '../../../shared/filters.js';
import { number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import type { paths } from '../../../shared/schema.js';
import { hasExtension } from '../../../shared/signers.js';
import { Someone } from '../../someone.js';
import { signedBy } from './signed.js';
import './texts.js';

type Answer = paths['/v1/search']['get']['responses'][200]['content']['application/json'];
type Found = Answer['items'][number];

const TYPING_MS = 300;
const filters = { q: text, topic: text };

export default function Search() {
  const t = useT();
  const [{ q, topic }, set] = useFilters(filters);
  const [isSigned, setSigned] = useState(false);
  const list = useInfiniteQuery({
    queryKey: ['search', q, topic, isSigned],
    queryFn: async ({ pageParam, signal }) => {
      const query = { q: q ?? '', ...(topic && { topic }), ...(pageParam && { cursor: pageParam }) };
      const headers = isSigned ? await signedBy('/v1/search', query) : {};
      return dataOf(api.GET('/v1/search', { params: { query }, headers, signal }));
    },
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (last) => last.next_cursor ?? undefined,
    enabled: q !== undefined,
    refetchOnWindowFocus: false,
    staleTime: 30_000,
  });
  return (
    <>
      <PageHead title={t('search:title')} about={t('search:about')} />
      <Paper withBorder p="md" mb="lg" component="search">
        <Group align="flex-end" gap="sm">
          <Typed
            label={t('search:words')}
            placeholder={t('search:wordsHint')}
            value={q}
            onType={(typed) => set({ q: typed })}
            isWide
          />
          <Typed
            label={t('search:topic')}
            placeholder={t('search:topicHint')}
            value={topic}
            onType={(typed) => set({ topic: typed })}
          />
        </Group>
      </Paper>
      {q === undefined ? (
        <Empty title={t('search:start')} icon={<IconListSearch size={26} />}>
          {t('search:startText')}
        </Empty>
      ) : (
        <Results list={list} q={q} onSign={() => setSigned(true)} />
      )}
    </>
  );
}

interface ResultsProps {
  readonly list: {
    readonly data: { readonly pages: readonly Answer[] } | undefined;
    readonly isPending: boolean;
    readonly error: unknown;
    readonly hasNextPage: boolean;
    readonly isFetchingNextPage: boolean;
    readonly fetchNextPage: () => unknown;
    readonly refetch: () => unknown;
  };
  readonly q: string;
  readonly onSign: () => void;
}

function Results({ list, q, onSign }: ResultsProps) {
  const t = useT();
  if (list.isPending) return <Loading />;
  if (list.data === undefined) return <Refused list={list} q={q} onSign={onSign} />;
  const items = list.data.pages.flatMap((page) => page.items);
  const index = list.data.pages[0]?.index;
  return (
    <Stack gap="sm">
      {index?.rebuilding && <Notice text={t('search:rebuilding')} />}
      {index !== undefined && index.behind > 0 && (
        <Notice text={t('search:behind', { count: index.behind })} />
      )}
      {items.length === 0 && <Empty title={t('search:none')}>{t('search:noneText')}</Empty>}
      {items.length > 0 && (
        <Stack gap="sm" role="list" aria-label={t('search:results')}>
          {items.map((found) => (
            <Result key={found.event.id} found={found} />
          ))}
        </Stack>
      )}
      {list.hasNextPage && (
        <Center>
          <Button variant="subtle" loading={list.isFetchingNextPage} onClick={() => list.fetchNextPage()}>
            {t('shared:more')}
          </Button>
        </Center>
      )}
    </Stack>
  );
}

function Notice({ text: notice }: { readonly text: string }) {
  return (
    <Alert variant="light" color="yellow" icon={<IconInfoCircle size={18} />}>
      {notice}
    </Alert>
  );
}

function Result({ found: { event, score } }: { readonly found: Found }) {
  const t = useT();
  return (
    <Paper withBorder p="md" role="listitem">
      <Group justify="space-between" gap="xs" mb={6}>
        <Someone pubkey={event.pubkey} to={`/members/${event.pubkey}`} />
        <Group gap="md">
          <Text size="xs" c="dimmed" className="number">
            {t('search:score', { score: number(score, 3) })}
          </Text>
          <Anchor component={Link} to={`/events/${event.id}`} size="xs" underline="always">
            <When at={event.created_at * 1_000} />
          </Anchor>
        </Group>
      </Group>
      <EventText text={event.content} />
    </Paper>
  );
}

function Refused({ list, q, onSign }: ResultsProps) {
  const t = useT();
  const code = list.error instanceof ApiError ? list.error.code : '';
  if (code === 'AUTH_REQUIRED')
    return (
      <Empty
        title={t('search:closed')}
        icon={<IconLock size={26} />}
        action={
          hasExtension() ? (
            <Button onClick={onSign}>{t('search:sign')}</Button>
          ) : (
            <Button component={Link} to="/events" search={{ text: q } as never} variant="default">
              {t('search:toEvents')}
            </Button>
          )
        }
      >
        {t(hasExtension() ? 'search:closedText' : 'search:noExtension')}
      </Empty>
    );
  if (code === 'SEARCH_NOT_READY')
    return <Empty title={t('search:notReady')}>{t('search:notReadyText')}</Empty>;
  if (code === 'INVALID_REQUEST' && hasProblem(list.error, 'topic'))
    return <Notice text={t('search:needsTopic')} />;
  return <Failure error={list.error} retry={() => void list.refetch()} />;
}

function hasProblem(error: unknown, field: string): boolean {
  const { problems } = (error as ApiError).details as { problems?: { path?: string }[] };
  return problems?.some(({ path }) => path?.endsWith(`/${field}`)) ?? false;
}

interface TypedProps {
  readonly label: string;
  readonly placeholder: string;
  readonly value: string | undefined;
  readonly onType: (text: string) => void;
  readonly isWide?: boolean;
}

/** A field that takes effect while one types, and follows the URL. */
function Typed({ label, placeholder, value = '', onType, isWide = false }: TypedProps) {
  const [typed, setTyped] = useState(value);
  useEffect(() => setTyped(value), [value]);
  const later = useDebouncedCallback(onType, TYPING_MS);
  return (
    <TextInput
      label={label}
      placeholder={placeholder}
      value={typed}
      maxLength={500}
      autoComplete="off"
      leftSection={isWide ? <IconSearch size={16} /> : undefined}
      style={{ flex: isWide ? '3 1 280px' : '1 1 180px' }}
      onChange={(event) => {
        setTyped(event.currentTarget.value);
        later(event.currentTarget.value.trim());
      }}
    />
  );
}
