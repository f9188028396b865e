/** Finds stored events. One field takes whatever a person has: words, an id, a key. */
import { Button, Group, Paper, Select, SimpleGrid, Text, TextInput } from '@mantine/core';
import { useDebouncedCallback } from '@mantine/hooks';
import { IconSearch, IconUserSearch } from '@tabler/icons-react';
import { Link, useNavigate } from '@tanstack/react-router';
import { useEffect, useMemo, useState } from 'react';
import { type Column, DataTable } from '../../../shared/components/data-table.js';
import { PageHead } from '../../../shared/components/page-head.js';
import { Empty } from '../../../shared/components/states.js';
import { When } from '../../../shared/components/when.js';
import { useFilters } from '../../../shared/filters.js';
import { useT } from '../../../shared/i18n.js';
import { npubOf, pubkeyOf } from '../../../shared/keys.js';
import { Someone } from '../../someone.js';
import { type Filters, filters, type Row, SHOWN, useEvents } from './list.js';
import { namedBy } from './named.js';
import { StateBadge, Topics, useKindName } from './parts.js';
import './events.css';
import './texts.js';

const TYPING_MS = 250;
const ROW_HEIGHT = 58;
const NOTHING: Partial<Filters> = Object.fromEntries(Object.keys(filters).map((name) => [name, undefined]));

export default function Finder() {
  const t = useT();
  const [asked, set] = useFilters(filters);
  const needsAuthor = asked.state === 'hidden' && asked.author === undefined && asked.id === undefined;
  const hasWords = asked.text !== undefined && asked.state !== undefined && asked.state !== 'served';
  const isReady = !needsAuthor && !hasWords;
  const list = useEvents(asked, isReady);
  const columns = useColumns();
  const isFiltered = Object.values(asked).some((value) => value !== undefined);
  return (
    <>
      <PageHead title={t('events:title')} about={t('events:about')} />
      <Controls asked={asked} set={set} isFiltered={isFiltered} />
      {needsAuthor && (
        <Empty title={t('events:needsAuthor')} icon={<IconUserSearch size={26} />}>
          {t('events:needsAuthorText')}
        </Empty>
      )}
      {hasWords && !needsAuthor && (
        <Empty
          title={t('events:noWords')}
          action={
            <Button variant="default" onClick={() => set({ state: undefined })}>
              {t('events:showing.served')}
            </Button>
          }
        >
          {t('events:noWordsText')}
        </Empty>
      )}
      {isReady && (
        <DataTable
          label={t('events:list')}
          list={list}
          columns={columns}
          keyOf={(row) => row.id}
          rowHeight={ROW_HEIGHT}
          empty={
            <Empty
              title={t('events:none')}
              action={
                isFiltered && (
                  <Button variant="default" onClick={() => set(NOTHING)}>
                    {t('events:reset')}
                  </Button>
                )
              }
            >
              {t('events:noneText')}
            </Empty>
          }
        />
      )}
    </>
  );
}

function useColumns(): readonly Column<Row>[] {
  const t = useT();
  return useMemo(
    () => [
      { label: t('events:content'), show: (row) => <Content row={row} /> },
      {
        label: t('events:author'),
        width: 190,
        isMinor: true,
        show: (row) => <Someone pubkey={row.author} to={`/members/${row.author}`} />,
      },
      {
        label: t('events:stateColumn'),
        width: 170,
        isMinor: true,
        show: (row) => <StateBadge state={row.state} />,
      },
      {
        label: t('events:time'),
        width: 130,
        show: (row) => (
          <Text size="sm" c="dimmed" className="number event-time">
            <When at={row.at} />
          </Text>
        ),
      },
    ],
    [t],
  );
}

/** One line of it, which leads to the event; below it what it is. */
function Content({ row }: { readonly row: Row }) {
  const t = useT();
  const kindName = useKindName();
  const isEmpty = row.text.trim() === '';
  const shown = isEmpty ? kindName(row.kind) : row.text;
  return (
    <div className="event-cell">
      <Text size="sm" lineClamp={1} c={isEmpty ? 'dimmed' : undefined}>
        <Link to={`/events/${row.id}`} className="event-link">
          {row.concealed === null ? shown : t(`events:concealed.${row.concealed}`)}
        </Link>
      </Text>
      <Group gap={8} wrap="nowrap">
        <Text size="xs" c="dimmed" className="event-time">
          {isEmpty && row.concealed === null ? `${row.id.slice(0, 12)}…` : kindName(row.kind)}
        </Text>
        {row.state !== 'served' && (
          <Text size="xs" c="dimmed" hiddenFrom="sm" className="event-time">
            {t(`events:state.${row.state}`)}
          </Text>
        )}
        <Topics topics={row.topics} max={1} />
      </Group>
    </div>
  );
}

interface ControlsProps {
  readonly asked: Filters;
  readonly set: (change: Partial<Filters>) => void;
  readonly isFiltered: boolean;
}

function Controls({ asked, set, isFiltered }: ControlsProps) {
  const t = useT();
  const navigate = useNavigate();
  /** An event opens its page, a key becomes the author, everything else is words. */
  const find = (typed: string) => {
    const given = typed.trim();
    const named = namedBy(given);
    const author = pubkeyOf(given);
    if (named?.id !== undefined) void navigate({ to: `/events/${named.id}` });
    else if (named !== undefined) set({ id: given, text: undefined });
    else if (author !== undefined) set({ author: npubOf(author), text: undefined, id: undefined });
    else set({ text: given === '' ? undefined : given, id: undefined });
  };
  return (
    <Paper withBorder p="md" mb="lg" component="search">
      <Typed
        label={t('events:find')}
        placeholder={t('events:findHint')}
        value={asked.text ?? asked.id}
        onType={find}
        icon
      />
      <SimpleGrid cols={{ base: 2, md: 3, xl: 6 }} spacing="sm" mt="sm">
        <Typed
          label={t('events:author')}
          placeholder={t('events:authorHint')}
          value={asked.author}
          wrong={(text) => (pubkeyOf(text) === undefined ? t('events:authorWrong') : undefined)}
          onType={(author) => set({ author })}
        />
        <Typed label={t('events:topic')} value={asked.topic} onType={(topic) => set({ topic })} />
        <Typed
          label={t('events:kinds')}
          placeholder={t('events:kindsHint')}
          value={asked.kind}
          wrong={(text) => (/^\d{1,5}(,\d{1,5})*$/.test(text) ? undefined : t('events:kindsWrong'))}
          onType={(kind) => set({ kind })}
        />
        <TextInput
          type="date"
          label={t('events:since')}
          value={asked.since ?? ''}
          onChange={(event) => set({ since: event.currentTarget.value })}
        />
        <TextInput
          type="date"
          label={t('events:until')}
          value={asked.until ?? ''}
          onChange={(event) => set({ until: event.currentTarget.value })}
        />
        <Select
          label={t('events:show')}
          value={asked.state ?? 'served'}
          allowDeselect={false}
          onChange={(state) => set({ state: state === 'served' ? undefined : (state as Filters['state']) })}
          data={SHOWN.map((value) => ({ value, label: t(`events:showing.${value}`) }))}
        />
      </SimpleGrid>
      {isFiltered && (
        <Group justify="flex-end" mt="sm">
          <Button variant="subtle" size="compact-sm" onClick={() => set(NOTHING)}>
            {t('events:reset')}
          </Button>
        </Group>
      )}
    </Paper>
  );
}

interface TypedProps {
  readonly label: string;
  readonly placeholder?: string;
  readonly value: string | undefined;
  readonly onType: (text: string) => void;
  /** What is wrong with a text that is not empty. */
  readonly wrong?: (text: string) => string | undefined;
  readonly icon?: boolean;
}

/** A field that takes effect while one types, and follows the URL. */
function Typed({ label, placeholder, value = '', onType, wrong, icon = false }: TypedProps) {
  const [typed, setTyped] = useState(value);
  useEffect(() => setTyped(value), [value]);
  const problem = typed === '' ? undefined : wrong?.(typed.trim());
  const later = useDebouncedCallback(onType, TYPING_MS);
  return (
    <TextInput
      label={label}
      placeholder={placeholder}
      value={typed}
      error={problem}
      maxLength={2_000}
      autoComplete="off"
      spellCheck={false}
      leftSection={icon ? <IconSearch size={16} /> : undefined}
      onChange={(event) => {
        const text = event.currentTarget.value;
        setTyped(text);
        if (text === '' || wrong?.(text.trim()) === undefined) later(text.trim());
      }}
    />
  );
}
