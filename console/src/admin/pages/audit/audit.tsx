/** The audit log with its filters in the URL, and its export. */
import { Button, Code, Group, Select, SimpleGrid, Stack, Text, TextInput } from '@mantine/core';
import { IconDownload } from '@tabler/icons-react';
import { useState } from 'react';
import { api, dataOf, errorOf, useAction, useList } from '../../../shared/api.js';
import { type Column, DataTable } from '../../../shared/components/data-table.js';
import { PageHead } from '../../../shared/components/page-head.js';
import { Empty } from '../../../shared/components/states.js';
import { When } from '../../../shared/components/when.js';
import { day, type FiltersOf, oneOf, text, textLike, useFilters } from '../../../shared/filters.js';
import { useT } from '../../../shared/i18n.js';
import { npubOf, pubkeyOf } from '../../../shared/keys.js';
import { prefix } from '../../../shared/place.js';
import { notifyDone } from '../../../shared/providers.js';
import { useMay } from '../../session.js';
import { Someone } from '../../someone.js';
import { ACTIONS, type Entry } from './actions.js';
import './texts.js';

const filters = {
  actor: textLike(/^[0-9a-f]{64}$/),
  action: oneOf(ACTIONS),
  target: text,
  since: day,
  until: day,
};
type Filters = FiltersOf<typeof filters>;

const DAY_MS = 86_400_000;

/** Days are those of the reader's own clock; the last one is included. */
function queryOf({ actor, action, target, since, until }: Filters) {
  const startOf = (text: string) => new Date(`${text}T00:00:00`).getTime();
  return {
    ...(actor === undefined ? {} : { actor }),
    ...(action === undefined ? {} : { action }),
    ...(target === undefined ? {} : { target }),
    ...(since === undefined ? {} : { since: startOf(since) }),
    ...(until === undefined ? {} : { until: startOf(until) + DAY_MS - 1 }),
  };
}

export default function Audit() {
  const t = useT();
  const may = useMay('operator');
  const [chosen, setFilters] = useFilters(filters);
  const query = queryOf(chosen);
  const list = useList(
    ['audit', query],
    (cursor) =>
      dataOf(api.GET('/v1/admin/audit-log', { params: { query: { ...query, limit: 100, cursor } } })),
    { enabled: may },
  );
  if (!may) return <Empty title={t('audit:forOperators')} />;
  const columns: Column<Entry>[] = [
    {
      label: t('audit:when'),
      show: ({ at }) => (
        <Text size="sm" style={{ whiteSpace: 'nowrap' }}>
          <When at={at} />
        </Text>
      ),
    },
    {
      label: t('audit:who'),
      show: ({ actor, details }) =>
        actor === null ? (
          <Text size="sm" c="dimmed">
            {typeof details.actor === 'string' ? details.actor : t('audit:node')}
          </Text>
        ) : (
          <Someone pubkey={actor} />
        ),
    },
    { label: t('audit:action'), show: ({ action }) => <Code>{action}</Code> },
    {
      label: t('audit:target'),
      show: ({ target }) => (
        <Text size="sm" style={{ overflowWrap: 'anywhere' }} maw={260} lineClamp={2}>
          {target}
        </Text>
      ),
    },
    { label: t('audit:details'), isMinor: true, show: ({ details }) => <Details details={details} /> },
  ];
  return (
    <>
      <PageHead title={t('audit:title')} about={t('audit:about')}>
        <Export query={query} type="application/x-ndjson" />
        <Export query={query} type="text/csv" />
      </PageHead>
      <FilterFields chosen={chosen} setFilters={setFilters} />
      <DataTable
        label={t('audit:list')}
        list={list}
        columns={columns}
        keyOf={({ position }) => String(position)}
        empty={<Empty title={t('audit:none')}>{t('audit:noneAbout')}</Empty>}
      />
    </>
  );
}

function Details({ details }: { readonly details: Entry['details'] }) {
  const text = JSON.stringify(details);
  if (text === '{}') return <>–</>;
  return (
    <Text
      size="xs"
      className="mono"
      style={{ overflowWrap: 'anywhere' }}
      maw={360}
      lineClamp={3}
      title={text}
    >
      {text}
    </Text>
  );
}

interface FilterFieldsProps {
  readonly chosen: Filters;
  readonly setFilters: (change: Partial<Filters>) => void;
}

function FilterFields({ chosen, setFilters }: FilterFieldsProps) {
  const t = useT();
  const [actor, setActor] = useState(chosen.actor === undefined ? '' : npubOf(chosen.actor));
  const [target, setTarget] = useState(chosen.target ?? '');
  const isWrong = actor.trim() !== '' && pubkeyOf(actor) === undefined;
  const isFiltered = Object.values(chosen).some((value) => value !== undefined);
  const clear = () => {
    setActor('');
    setTarget('');
    setFilters({
      actor: undefined,
      action: undefined,
      target: undefined,
      since: undefined,
      until: undefined,
    });
  };
  return (
    <Stack gap="xs" mb="md" role="search" aria-label={t('audit:filters')}>
      <SimpleGrid cols={{ base: 1, sm: 2, lg: 5 }}>
        <TextInput
          label={t('audit:actor')}
          placeholder="npub1…"
          error={isWrong && t('audit:actorWrong')}
          value={actor}
          onChange={(event) => {
            setActor(event.currentTarget.value);
            setFilters({ actor: pubkeyOf(event.currentTarget.value) });
          }}
        />
        <Select
          label={t('audit:action')}
          placeholder={t('audit:anyAction')}
          clearable
          searchable
          data={[...ACTIONS]}
          value={chosen.action ?? null}
          onChange={(value) => setFilters({ action: ACTIONS.find((one) => one === value) })}
        />
        <form
          onSubmit={(event) => {
            event.preventDefault();
            setFilters({ target: target.trim() });
          }}
        >
          <TextInput
            label={t('audit:target')}
            placeholder={t('audit:targetAbout')}
            value={target}
            onChange={(event) => setTarget(event.currentTarget.value)}
            onBlur={() => setFilters({ target: target.trim() })}
          />
        </form>
        <TextInput
          type="date"
          label={t('audit:since')}
          value={chosen.since ?? ''}
          onChange={(event) => setFilters({ since: event.currentTarget.value })}
        />
        <TextInput
          type="date"
          label={t('audit:until')}
          value={chosen.until ?? ''}
          onChange={(event) => setFilters({ until: event.currentTarget.value })}
        />
      </SimpleGrid>
      {isFiltered && (
        <Group>
          <Button size="xs" variant="default" onClick={clear}>
            {t('audit:clear')}
          </Button>
        </Group>
      )}
    </Stack>
  );
}

interface ExportProps {
  readonly query: ReturnType<typeof queryOf>;
  readonly type: 'application/x-ndjson' | 'text/csv';
}

/** The whole export is read before it is saved, because the type is chosen by a header. */
function Export({ query, type }: ExportProps) {
  const t = useT();
  const isCsv = type === 'text/csv';
  const save = useAction(
    async () => {
      const search = new URLSearchParams(Object.entries(query).map(([key, value]) => [key, String(value)]));
      const response = await fetch(`${prefix}/v1/admin/audit-log/export?${search}`, {
        headers: { accept: type },
      });
      if (!response.ok) throw await errorOf(response);
      const address = URL.createObjectURL(await response.blob());
      const link = document.createElement('a');
      link.href = address;
      link.download = isCsv ? 'audit-log.csv' : 'audit-log.jsonl';
      link.click();
      URL.revokeObjectURL(address);
    },
    { changes: [], onDone: () => notifyDone(t('audit:exported')) },
  );
  return (
    <Button
      variant="default"
      leftSection={<IconDownload size={16} />}
      loading={save.isPending}
      onClick={() => save.mutate()}
    >
      {t(isCsv ? 'audit:exportCsv' : 'audit:exportJson')}
    </Button>
  );
}
