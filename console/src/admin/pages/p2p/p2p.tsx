/** Gossip with other nodes: its state, the ticket of this node, and the nodes that were joined by ticket. */
import { Alert, Button, Code, Group, Paper, Stack, Table, Text, TextInput, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { api, dataOf, useAction } from '../../../shared/api.js';
import { Copy } from '../../../shared/components/copy.js';
import { PageHead } from '../../../shared/components/page-head.js';
import { Empty, Failure, Loading } from '../../../shared/components/states.js';
import { TableScroll } from '../../../shared/components/table-scroll.js';
import { number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { notifyDone } from '../../../shared/providers.js';
import { useNodeOperator } from '../jobs/list.js';
import { OnlyNode } from '../jobs/only-node.js';
import { StateBadge } from '../jobs/state-badge.js';
import './texts.js';

const KEY = ['p2p'];
const REFETCH_MS = 5_000;
const SHORT = 8;

function useGossip(enabled: boolean) {
  return useQuery({
    queryKey: KEY,
    queryFn: () => dataOf(api.GET('/v1/admin/p2p')),
    refetchInterval: REFETCH_MS,
    enabled,
  });
}

type Found = NonNullable<ReturnType<typeof useGossip>['data']>;

export default function Gossip() {
  const t = useT();
  const isOperator = useNodeOperator();
  const { data, error, refetch } = useGossip(isOperator === true);
  return (
    <>
      <PageHead title={t('gossip:title')} about={t('gossip:intro')} />
      {isOperator === false && <OnlyNode>{t('gossip:onlyNode')}</OnlyNode>}
      {isOperator !== false && error && <Failure error={error} retry={() => void refetch()} />}
      {isOperator !== false && !error && data === undefined && <Loading />}
      {data && !data.enabled && <Empty title={t('gossip:off')}>{t('gossip:offAbout')}</Empty>}
      {data?.enabled && (
        <Stack>
          <State found={data} />
          <Ticket ticket={data.ticket} />
          <Peers found={data} />
          <Alert variant="light" role="note">
            {t('gossip:relayNote')}
          </Alert>
        </Stack>
      )}
    </>
  );
}

function State({ found: { held, state } }: { readonly found: Found }) {
  const t = useT();
  const problem = state?.problem ?? (state?.port_taken ? t('gossip:portTaken') : null);
  const rows: (readonly [string, string])[] =
    state === null
      ? []
      : [
          [
            t('gossip:topics'),
            state.topics === state.topics_wanted
              ? number(state.topics)
              : t('gossip:topicsOf', { joined: number(state.topics), wanted: number(state.topics_wanted) }),
          ],
          [t('gossip:neighbours'), number(state.neighbours.length)],
          [
            t('gossip:sent'),
            t('gossip:sentAs', { events: number(state.sent.events), messages: number(state.sent.messages) }),
          ],
          [
            t('gossip:received'),
            t('gossip:receivedAs', {
              accepted: number(state.received.accepted),
              duplicates: number(state.received.duplicates),
              refused: number(state.received.refused),
              invalid: number(state.received.invalid),
            }),
          ],
          [
            t('gossip:catchUp'),
            t('gossip:catchUpAs', {
              done: number(state.catch_up.done),
              waiting: number(state.catch_up.waiting),
              failed: number(state.catch_up.failed),
            }),
          ],
        ];
  return (
    <Paper withBorder p="md">
      <Stack gap="sm" align="flex-start">
        <Title order={2} size="h4">
          {t('gossip:state')}
        </Title>
        <StateBadge color={held ? 'teal' : 'orange'}>{t(held ? 'gossip:on' : 'gossip:notHeld')}</StateBadge>
        {problem !== null && (
          <Alert color="red" variant="light" role="alert" title={t('gossip:problem')}>
            {problem}
          </Alert>
        )}
        <Table aria-label={t('gossip:state')} maw={640}>
          <Table.Tbody>
            {rows.map(([label, value]) => (
              <Table.Tr key={label}>
                <Table.Th w={200}>{label}</Table.Th>
                <Table.Td>{value}</Table.Td>
              </Table.Tr>
            ))}
            {state !== null && state.dropped.length > 0 && (
              <Table.Tr>
                <Table.Th>{t('gossip:ignored')}</Table.Th>
                <Table.Td>{state.dropped.map((id) => id.slice(0, SHORT)).join(' ')}</Table.Td>
              </Table.Tr>
            )}
          </Table.Tbody>
        </Table>
      </Stack>
    </Paper>
  );
}

function Ticket({ ticket }: { readonly ticket: string | null }) {
  const t = useT();
  return (
    <Paper withBorder p="md">
      <Stack gap="xs">
        <Title order={2} size="h4">
          {t('gossip:ticket')}
        </Title>
        <Text size="sm" c="dimmed">
          {ticket === null ? t('gossip:noTicket') : t('gossip:ticketAbout')}
        </Text>
        {ticket !== null && (
          <Group gap="xs" wrap="nowrap" align="flex-start">
            <Code block style={{ whiteSpace: 'pre-wrap', overflowWrap: 'anywhere' }}>
              {ticket}
            </Code>
            <Copy value={ticket} label={t('gossip:copyTicket')} />
          </Group>
        )}
      </Stack>
    </Paper>
  );
}

function Peers({ found: { peers, state } }: { readonly found: Found }) {
  const t = useT();
  const [ticket, setTicket] = useState('');
  const join = useAction(
    (text: string) => dataOf(api.POST('/v1/admin/p2p/peers', { body: { ticket: text } })),
    {
      changes: [KEY],
      onDone: () => {
        setTicket('');
        notifyDone(t('gossip:joined'));
      },
    },
  );
  const leave = useAction(
    ({ machine }: { readonly machine: string; readonly name: string }) =>
      dataOf(api.DELETE('/v1/admin/p2p/peers/{machine}', { params: { path: { machine } } })),
    { changes: [KEY], onDone: (_done, { name }) => notifyDone(t('gossip:left', { name })) },
  );
  const up = new Set(state?.neighbours.map(({ machine }) => machine));
  return (
    <Paper withBorder p="md">
      <Stack gap="sm">
        <Title order={2} size="h4">
          {t('gossip:peers')}
        </Title>
        {peers.length === 0 && <Empty title={t('gossip:noPeers')}>{t('gossip:noPeersAbout')}</Empty>}
        {peers.length > 0 && (
          <TableScroll label={t('gossip:peers')}>
            <Table aria-label={t('gossip:peers')}>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>{t('gossip:node')}</Table.Th>
                  <Table.Th>{t('gossip:machines')}</Table.Th>
                  <Table.Th w={110}>{t('gossip:leave')}</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {peers.map(({ machines, urls }) => {
                  const first = machines[0]!.id;
                  const name = urls[0] ?? first.slice(0, SHORT);
                  const isUp = machines.some(({ id }) => up.has(id));
                  return (
                    <Table.Tr key={first}>
                      <Table.Td className="text">{name}</Table.Td>
                      <Table.Td>
                        {machines.map(({ id }) => id.slice(0, SHORT)).join(' ')}{' '}
                        {t(isUp ? 'gossip:connected' : 'gossip:notConnected')}
                      </Table.Td>
                      <Table.Td>
                        <Button
                          size="compact-sm"
                          variant="default"
                          aria-label={t('gossip:leaveOf', { name })}
                          onClick={() => leave.mutate({ machine: first, name })}
                        >
                          {t('gossip:leave')}
                        </Button>
                      </Table.Td>
                    </Table.Tr>
                  );
                })}
              </Table.Tbody>
            </Table>
          </TableScroll>
        )}
        <form
          onSubmit={(event) => {
            event.preventDefault();
            if (ticket.trim() !== '') join.mutate(ticket.trim());
          }}
        >
          <Group align="flex-end">
            <TextInput
              label={t('gossip:joinLabel')}
              value={ticket}
              onChange={(event) => setTicket(event.currentTarget.value)}
              style={{ flexGrow: 1 }}
            />
            <Button type="submit" loading={join.isPending}>
              {t('gossip:join')}
            </Button>
          </Group>
        </form>
      </Stack>
    </Paper>
  );
}
