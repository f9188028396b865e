/** A short message about something that was done, or that failed. Its button to close has a name. */
import { notifications } from '@mantine/notifications';
import i18next from 'i18next';
import { messageOf } from '../../../shared/messages.js';

const closeButtonProps = () => ({ 'aria-label': i18next.t('shared:close') });

export function notify(message: string): void {
  notifications.show({ message, closeButtonProps: closeButtonProps() });
}

export function notifyFailure(error: unknown): void {
  const { title, text } = messageOf(error);
  notifications.show({ color: 'red', title, message: text, closeButtonProps: closeButtonProps() });
}
