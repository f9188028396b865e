/** The frame of the console: navigation, who is signed in, and the page. */
import {
  ActionIcon,
  Anchor,
  AppShell,
  Badge,
  Burger,
  Button,
  Group,
  Kbd,
  Menu,
  Modal,
  NavLink,
  ScrollArea,
  Stack,
  Table,
  Text,
  TextInput,
} from '@mantine/core';
import { useDisclosure, useHotkeys } from '@mantine/hooks';
import { IconKeyboard, IconLogout, IconSearch, IconUserCircle } from '@tabler/icons-react';
import { Link, Outlet, useLocation, useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { PageHead } from '../shared/components/page-head.js';
import { Switches } from '../shared/components/switches.js';
import { useLabel, useT } from '../shared/i18n.js';
import { adminBase, iconUrl, membersBase } from '../shared/place.js';
import { GROUPS, mayAct } from './page.js';
import type { Listed } from './router.js';
import { signOut, useSession } from './session.js';
import { Someone } from './someone.js';
import './texts.js';

interface ShellProps {
  readonly navigation: readonly Listed[];
}

export function Shell({ navigation }: ShellProps) {
  const t = useT();
  const session = useSession();
  const [isOpen, { toggle, close }] = useDisclosure();
  const [isHelping, help] = useDisclosure();
  const [isFinding, find] = useDisclosure();
  useHotkeys([
    ['/', find.open],
    ['shift+?', help.open],
    ['?', help.open],
  ]);
  const allowed = navigation.filter(({ role = 'viewer' }) => mayAct(session.role, role));
  return (
    <AppShell
      header={{ height: 56 }}
      navbar={{ width: 232, breakpoint: 'md', collapsed: { mobile: !isOpen } }}
      padding={{ base: 'md', md: 'xl' }}
    >
      <AppShell.Header px="md">
        <Anchor href="#page" className="skip">
          {t('admin:skip')}
        </Anchor>
        <Group h="100%" justify="space-between" wrap="nowrap">
          <Group gap="sm" wrap="nowrap">
            <Burger
              opened={isOpen}
              onClick={toggle}
              hiddenFrom="md"
              size="sm"
              aria-label={t('admin:openNavigation')}
            />
            <img src={iconUrl} width={28} height={28} alt="" />
            <Text fw={700}>Minato</Text>
            <Badge variant="light" visibleFrom="sm">
              {t('admin:console')}
            </Badge>
          </Group>
          <Group gap="xs" wrap="nowrap">
            <Button
              variant="default"
              size="xs"
              onClick={find.open}
              leftSection={<IconSearch size={14} />}
              rightSection={<Kbd size="xs">/</Kbd>}
              visibleFrom="sm"
            >
              {t('admin:find')}
            </Button>
            <Switches />
            <Who onHelp={help.open} />
          </Group>
        </Group>
      </AppShell.Header>
      <AppShell.Navbar p="xs" aria-label={t('admin:navigation')}>
        <AppShell.Section grow component={ScrollArea}>
          <Navigation entries={allowed} onChosen={close} />
        </AppShell.Section>
        <AppShell.Section px="sm" py="xs">
          <Stack gap={4}>
            <Anchor href={membersBase} size="xs">
              {t('admin:membersPage')}
            </Anchor>
            <Anchor href="/docs" size="xs">
              {t('admin:apiDocs')}
            </Anchor>
          </Stack>
        </AppShell.Section>
      </AppShell.Navbar>
      <AppShell.Main id="page" tabIndex={-1}>
        <Outlet />
      </AppShell.Main>
      <Help opened={isHelping} onClose={help.close} />
      <Finder opened={isFinding} onClose={find.close} entries={allowed} />
    </AppShell>
  );
}

interface EntriesProps {
  readonly entries: readonly Listed[];
  readonly onChosen: () => void;
}

function Navigation({ entries, onChosen }: EntriesProps) {
  const t = useT();
  const labelOf = useLabel();
  const { pathname } = useLocation();
  const isHere = (path: string) => pathname === path || pathname.startsWith(`${path}/`);
  return (
    <Stack gap="md">
      {GROUPS.map((group) => {
        const own = entries.filter((entry) => entry.group === group);
        if (own.length === 0) return null;
        return (
          <div key={group}>
            <Text size="xs" fw={700} c="dimmed" px="sm" mb={4} component="h2">
              {t(`admin:group.${group}`)}
            </Text>
            {own.map(({ path, label, icon: Icon }) => (
              <NavLink
                key={path}
                component={Link}
                to={path}
                onClick={onChosen}
                active={isHere(path)}
                aria-current={isHere(path) ? 'page' : undefined}
                label={labelOf(label)}
                leftSection={<Icon size={18} stroke={1.6} />}
                styles={{ root: { borderRadius: 'var(--mantine-radius-md)' } }}
              />
            ))}
          </div>
        );
      })}
    </Stack>
  );
}

function Who({ onHelp }: { readonly onHelp: () => void }) {
  const t = useT();
  const { pubkey, role } = useSession();
  return (
    <Menu position="bottom-end" withArrow>
      <Menu.Target>
        <ActionIcon variant="default" size="md" aria-label={t(`admin:role.${role}`)}>
          <IconUserCircle size={18} />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>
          <Stack gap={2}>
            {t(`admin:role.${role}`)}
            <Someone pubkey={pubkey} />
          </Stack>
        </Menu.Label>
        <Menu.Item leftSection={<IconKeyboard size={16} />} onClick={onHelp}>
          {t('admin:help')}
        </Menu.Item>
        <Menu.Item leftSection={<IconLogout size={16} />} onClick={() => void signOut()}>
          {t('admin:signOut')}
        </Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}

interface DialogProps {
  readonly opened: boolean;
  readonly onClose: () => void;
}

function Help({ opened, onClose }: DialogProps) {
  const t = useT();
  const keys = [
    ['/', t('admin:helpSearch')],
    ['?', t('admin:helpHelp')],
    ['Esc', t('admin:helpEscape')],
  ] as const;
  const close = { 'aria-label': t('shared:close') };
  return (
    <Modal opened={opened} onClose={onClose} title={t('admin:help')} centered closeButtonProps={close}>
      <Table>
        <Table.Tbody>
          {keys.map(([key, about]) => (
            <Table.Tr key={key}>
              <Table.Td w={80}>
                <Kbd>{key}</Kbd>
              </Table.Td>
              <Table.Td>{about}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Modal>
  );
}

function Finder({ opened, onClose, entries }: DialogProps & { readonly entries: readonly Listed[] }) {
  const t = useT();
  const labelOf = useLabel();
  const navigate = useNavigate();
  const [words, setWords] = useState('');
  const sought = words.trim().toLowerCase();
  const found = entries.filter(({ label, path }) =>
    `${label.en} ${label.ja} ${path}`.toLowerCase().includes(sought),
  );
  const close = () => {
    setWords('');
    onClose();
  };
  const go = (path: string | undefined) => {
    if (path === undefined) return;
    close();
    void navigate({ to: path });
  };
  return (
    <Modal
      opened={opened}
      onClose={close}
      title={t('admin:find')}
      closeButtonProps={{ 'aria-label': t('shared:close') }}
    >
      <form
        onSubmit={(event) => {
          event.preventDefault();
          go(found[0]?.path);
        }}
      >
        <TextInput
          data-autofocus
          aria-label={t('admin:find')}
          leftSection={<IconSearch size={16} />}
          value={words}
          onChange={(event) => setWords(event.currentTarget.value)}
          mb="xs"
        />
      </form>
      {found.length === 0 && <Text size="sm">{t('admin:findNothing')}</Text>}
      {found.map(({ path, label, icon: Icon }) => (
        <NavLink
          key={path}
          component="button"
          type="button"
          label={labelOf(label)}
          leftSection={<Icon size={18} stroke={1.6} />}
          onClick={() => go(path)}
        />
      ))}
    </Modal>
  );
}

export function NotFound() {
  const t = useT();
  const { pathname } = useLocation();
  return (
    <>
      <PageHead title={t('admin:notFound')} about={t('admin:notFoundAbout', { path: pathname })} />
      <Button component="a" href={`${adminBase}/`} variant="default">
        {t('admin:toOverview')}
      </Button>
    </>
  );
}
