/**
 * The member's data: a file of everything, and the erasure of everything. The id of an erasure is kept in this
 * browser, because the node forgets the member; with it and the key the certificate can be fetched.
 */
import { Alert, Anchor, Badge, Button, Group, Paper, Stack, Text, Textarea, Title } from '@mantine/core';
import { IconCertificate, IconDownload, IconTrash } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { ApiError, api, dataOf, useAction } from '../../shared/api.js';
import { Confirm } from '../../shared/components/confirm.js';
import { Failure, Loading } from '../../shared/components/states.js';
import { When } from '../../shared/components/when.js';
import { bytes, dateTime, number } from '../../shared/format.js';
import { useT } from '../../shared/i18n.js';
import { prefix } from '../../shared/place.js';
import { useAbout } from '../community.js';
import { type Deletion, type Export, useDirectory, useMine } from '../data.js';
import { Own } from '../parts/own.js';
import { relay } from '../relay.js';
import { useMember } from '../session.js';

const FOLLOWED_MS = 1_500;
const DELETIONS = '/v1/personal-data-deletion-requests';

export default function Data() {
  const t = useT();
  return (
    <Own title={t('home:myData')} about={t('home:myDataAbout')}>
      <Stack gap="xl">
        <Exports />
        <Erasure />
      </Stack>
    </Own>
  );
}

// ── The file ───────────────────────────────────────────────────────────────────────────────────────────────

const isUnderWay = ({ status }: Pick<Export, 'status'>) => status === 'pending' || status === 'running';

function Exports() {
  const t = useT();
  const reader = useMember()?.pubkey;
  const exports = useQuery({
    queryKey: ['exports', reader],
    queryFn: () => dataOf(api.GET('/v1/personal-data-export-requests', { params: { query: { limit: 5 } } })),
    refetchInterval: ({ state }) => (state.data?.items.some(isUnderWay) ? FOLLOWED_MS : false),
  });
  const make = useAction(() => dataOf(api.POST('/v1/personal-data-export-requests', { body: {} })), {
    changes: [['exports'], ['usage']],
  });
  const isBeingErased = exports.error instanceof ApiError && exports.error.code === 'BEING_ERASED';
  if (isBeingErased) return null;
  return (
    <Stack component="section" gap="sm">
      <Title order={2} size="h4">
        {t('home:exportTitle')}
      </Title>
      <Text size="sm">{t('home:exportAbout')}</Text>
      {exports.isError && <Failure error={exports.error} retry={() => void exports.refetch()} />}
      {exports.data?.items.map((each) => (
        <ExportRow key={each.request_id} request={each} />
      ))}
      <Group>
        <Button
          leftSection={<IconDownload size={16} />}
          loading={make.isPending}
          disabled={exports.data?.items.some(isUnderWay)}
          onClick={() => make.mutate(undefined)}
        >
          {t('home:makeExport')}
        </Button>
      </Group>
    </Stack>
  );
}

function ExportRow({ request }: { readonly request: Export }) {
  const t = useT();
  return (
    <Paper withBorder px="md" py="sm">
      <Group justify="space-between">
        <Group gap="xs">
          <Badge color={request.status === 'ready' ? 'teal.9' : 'gray.7'}>
            {t(`home:exportStatus.${request.status}`)}
          </Badge>
          <Text size="sm" c="dimmed">
            <When at={request.created_at} />
          </Text>
          {request.error !== null && <Text size="sm">{request.error}</Text>}
        </Group>
        {request.download_url !== null && (
          <Group gap="sm">
            <Text size="xs" c="dimmed">
              {request.expires_at === null
                ? ''
                : t('home:downloadUntil', { time: dateTime(request.expires_at) })}
            </Text>
            <Anchor href={request.download_url} download>
              {t('home:download', { size: bytes(request.bytes ?? 0) })}
            </Anchor>
          </Group>
        )}
      </Group>
    </Paper>
  );
}

// ── Erasure ────────────────────────────────────────────────────────────────────────────────────────────────

const keptAs = (pubkey: string) => `minato.erasure${prefix}.${pubkey}`;

/** The newest erasure: of the node's list, or the one that this browser remembers. */
function useErasure(pubkey: string) {
  return useQuery({
    queryKey: ['erasure', pubkey],
    queryFn: async (): Promise<Deletion | null> => {
      const kept = localStorage.getItem(keptAs(pubkey));
      if (kept === null) {
        const { items } = await dataOf(api.GET(DELETIONS, { params: { query: { limit: 1 } } }));
        return items[0] ?? null;
      }
      try {
        return await dataOf(api.GET(`${DELETIONS}/{request_id}`, { params: { path: { request_id: kept } } }));
      } catch (error) {
        // Another node, or a certificate that was removed by its operator.
        if (error instanceof ApiError && error.code === 'NOT_FOUND') return null;
        throw error;
      }
    },
    refetchInterval: ({ state }) =>
      state.data !== null && state.data !== undefined && isUnderWay(state.data) ? FOLLOWED_MS : false,
  });
}

function Erasure() {
  const t = useT();
  const pubkey = useMember()?.pubkey ?? '';
  const erasure = useErasure(pubkey);
  const [isAsking, setAsking] = useState(false);
  const current = erasure.data;
  const isOpen = current !== null && current !== undefined && isUnderWay(current);
  return (
    <Stack component="section" gap="sm">
      <Title order={2} size="h4">
        {t('home:eraseTitle')}
      </Title>
      <Text size="sm">{t('home:eraseAbout')}</Text>
      {erasure.isPending && <Loading />}
      {erasure.isError && <Failure error={erasure.error} retry={() => void erasure.refetch()} />}
      {current && <Progress request={current} />}
      {erasure.isSuccess && !isOpen && (
        <Group>
          <Button color="red.8" leftSection={<IconTrash size={16} />} onClick={() => setAsking(true)}>
            {t('home:erase')}
          </Button>
        </Group>
      )}
      {isAsking && <EraseDialog pubkey={pubkey} onClose={() => setAsking(false)} />}
    </Stack>
  );
}

/** How many events of the member the node serves; undefined while it is counted, or if it cannot be. */
function useOwnEvents(pubkey: string): number | undefined {
  const { data: about } = useAbout();
  const directory = useDirectory();
  const { open } = useMine();
  const topics = [...new Set([...directory.items, ...open].map(({ topic_id }) => topic_id))].sort();
  const needsTopics = about?.topics.mode === 'required';
  const filter = { authors: [pubkey], ...(needsTopics ? { '#t': topics.slice(0, 100) } : {}) };
  return (
    useQuery({
      queryKey: ['own events', filter],
      enabled: about !== undefined && directory.isSuccess,
      queryFn: async () => (await relay.count(filter)) ?? null,
    }).data ?? undefined
  );
}

interface EraseDialogProps {
  readonly pubkey: string;
  readonly onClose: () => void;
}

function EraseDialog({ pubkey, onClose }: EraseDialogProps) {
  const t = useT();
  const { data: about } = useAbout();
  const { open } = useMine();
  const events = useOwnEvents(pubkey);
  const [note, setNote] = useState('');
  const erase = useAction(
    () => dataOf(api.POST(DELETIONS, { body: note.trim() === '' ? {} : { note: note.trim() } })),
    {
      changes: [['erasure'], ['exports']],
      onDone: ({ request_id }) => {
        localStorage.setItem(keptAs(pubkey), request_id);
        onClose();
      },
    },
  );
  return (
    <Confirm
      opened
      title={t('home:eraseTitle')}
      name={about?.name ?? 'Minato'}
      action={t('home:erase')}
      isBusy={erase.isPending}
      onConfirm={() => erase.mutate(undefined)}
      onClose={onClose}
    >
      <Text size="sm">
        {t('home:eraseWhat', {
          events: events === undefined ? '…' : number(events),
          subscriptions: number(open.length),
        })}
      </Text>
      <Alert color="red">{t('home:eraseForEver')}</Alert>
      <Textarea
        label={t('home:eraseNote')}
        maxLength={1_000}
        value={note}
        onChange={(event) => setNote(event.currentTarget.value)}
      />
    </Confirm>
  );
}

function Progress({ request }: { readonly request: Deletion }) {
  const t = useT();
  const cancel = useAction(
    () =>
      dataOf(
        api.POST(`${DELETIONS}/{request_id}/cancel`, {
          params: { path: { request_id: request.request_id } },
        }),
      ),
    { changes: [['erasure']] },
  );
  const { erasure } = request;
  return (
    <Paper withBorder p="md" role="status">
      <Stack gap="xs" align="flex-start">
        <Badge color={request.status === 'done' ? 'teal.9' : 'indigo.8'}>
          {t(`home:eraseStatus.${request.status}`)}
        </Badge>
        {request.status === 'pending' && erasure !== null && (
          <Text size="sm">{t('home:graceUntil', { time: dateTime(erasure.grace_until) })}</Text>
        )}
        {erasure !== null && erasure.rows_counted > 0 && (
          <Text size="sm" className="number">
            {t('home:rowsDeleted', {
              deleted: number(erasure.rows_deleted),
              counted: number(erasure.rows_counted),
            })}
          </Text>
        )}
        {request.error !== null && <Alert color="red">{request.error}</Alert>}
        <Text size="xs" c="dimmed" className="mono">
          {t('home:erasureId', { id: request.request_id })}
        </Text>
        {request.status === 'pending' && (
          <Button
            variant="default"
            size="xs"
            loading={cancel.isPending}
            onClick={() => cancel.mutate(undefined)}
          >
            {t('home:cancelErasure')}
          </Button>
        )}
        {request.status === 'done' && <Certificate id={request.request_id} />}
      </Stack>
    </Paper>
  );
}

/** The signed event, and a page to print; both are files for keeping. */
function Certificate({ id }: { readonly id: string }) {
  const t = useT();
  const fetching = useAction(
    async (type: 'application/json' | 'text/html') => {
      const answer = await api.GET(`${DELETIONS}/{request_id}/certificate`, {
        params: { path: { request_id: id } },
        headers: { accept: type },
        parseAs: 'blob',
      });
      return { file: answer.data as Blob, ending: type === 'text/html' ? 'html' : 'json' };
    },
    { changes: [], onDone: ({ file, ending }) => save(file, `erasure-${id}.${ending}`) },
  );
  return (
    <Stack gap="xs">
      <Text size="sm">{t('home:certificateAbout')}</Text>
      <Group gap="xs">
        <Button
          leftSection={<IconCertificate size={16} />}
          loading={fetching.isPending}
          onClick={() => fetching.mutate('application/json')}
        >
          {t('home:certificate')}
        </Button>
        <Button variant="default" loading={fetching.isPending} onClick={() => fetching.mutate('text/html')}>
          {t('home:certificatePage')}
        </Button>
      </Group>
    </Stack>
  );
}

function save(file: Blob, name: string): void {
  const url = URL.createObjectURL(file);
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}
