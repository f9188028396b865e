/** A QR code, drawn here: nothing is sent anywhere. */
import { encode } from 'uqr';

const BORDER = 1;

export function Qr({ text, label, size = 168 }: { text: string; label: string; size?: number }) {
  const { data, size: modules } = encode(text, { border: BORDER });
  const path = data
    .flatMap((row, y) => row.map((isDark, x) => (isDark ? `M${x} ${y}h1v1h-1z` : '')))
    .join('');
  return (
    <svg
      className="qr"
      role="img"
      aria-label={label}
      width={size}
      height={size}
      viewBox={`0 0 ${modules} ${modules}`}
      shapeRendering="crispEdges"
    >
      <path d={path} fill="#000" />
    </svg>
  );
}
